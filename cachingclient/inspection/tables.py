"""Names of what makes a result differ from call to call, and of what is only named like it."""

from __future__ import annotations

import re
from functools import lru_cache

from cachingclient.admission import effect_of

CLOCK = "reads the clock"
RANDOM = "uses random numbers"
UNIQUE = "makes unique ids"
ENVIRONMENT = "reads the environment"
CLUSTER = "asks the cluster"
DATABASE = "writes to a database"
NETWORK = "talks to the network"
PROGRAMS = "runs other programs"
FILES = "writes files"
USER = "asks the user"
LISTING = "looks at the file system"
GLOBAL = "changes a global"
STATE = "draws from a random generator that lives on between calls"
LEFT = "reads what earlier calls left behind"

_NETWORK = (
    "socket|requests|httpx|aiohttp|urllib3|boto3|botocore|aiobotocore|s3fs|minio|paramiko|ftplib"
    "|smtplib|imaplib|poplib|nntplib|telnetlib|websockets?|grpc|pycurl|httplib2|xmlrpc|zmq|kafka"
    "|pika|redis|pymongo|psycopg2?|pymysql"
)
#: A path of pathlib, whichever of its private classes defines the method
_PATH = r"(pathlib\.(\w+\.)*)?\w*Path(Base)?"
_LOOKS = r"(iterdir|r?glob|walk|l?stat|l?exists|is_(?!a|rel|res)\w+|samefile|owner|group|readlink)"
#: Modules with functions as in numpy.random
_RANDOM = "numpy|cupy|dask.array"

#: Extend by a line: the first pattern that matches a whole name decides.
NAMES = tuple(
    (reason, re.compile(pattern))
    for reason, pattern in (
        (CLOCK, r"time\.(time|monotonic|perf_counter|process_time|thread_time)(_ns)?"),
        (CLOCK, r"time\.clock\w*|timeit\.default_timer|os\.times|resource\.getrusage"),
        (CLOCK, r"(.*\.)?(datetime|date|Timestamp|Period)\.(now|utcnow|today)"),
        (RANDOM, r"random\.([a-z]\w*|SystemRandom)|secrets\.(?!compare)\w+"),
        (RANDOM, rf"({_RANDOM})\.random\.(?!default_rng|mtrand|bit_gen|get_state|test)[a-z]\w*"),
        (RANDOM, r"torch\.(rand(n|int|perm)?(_like)?|normal|bernoulli|multinomial)"),
        (RANDOM, r"os\.(urandom|getrandom)"),
        (UNIQUE, r"uuid\.uuid[1467]|tempfile\.(mk[ds]?temp|mktemp)"),
        (ENVIRONMENT, r"os\.(environb?|getenvb?|get(p|pp|e?u|e?g|pg|s)id|getlogin|getgroups)"),
        (ENVIRONMENT, r"os\.(getcwdb?|getpgrp|getloadavg|uname)|platform\.(node|uname)"),
        (ENVIRONMENT, rf"(os\.|posix|nt)?path\.expandvars|{_PATH}\.cwd"),
        (ENVIRONMENT, r"threading\.(get_(native_id|ident)|current_thread|active_count|enumerate)"),
        (ENVIRONMENT, r"multiprocessing\.(process\.)?(current_process|active_children)"),
        (ENVIRONMENT, r"getpass\.getuser|uuid\.getnode|dask\.config\.(get|config)"),
        (CLUSTER, r"distributed\.(\w+\.)*(get_worker|Variable|Queue|Event|Pub|Sub)"),
        (NETWORK, rf"({_NETWORK})(\..*)?|urllib\.request(\..*)?|http\.(client|server)(\..*)?"),
        (PROGRAMS, r"subprocess\.(run|Popen|call|check_\w+|get\w*output)"),
        (PROGRAMS, r"os\.(system|popen|posix_spawn\w*|spawn\w+|exec[lv]\w*|fork\w*|kill\w*)"),
        (PROGRAMS, r"os\.startfile|asyncio\.(\w+\.)?create_subprocess_\w+|webbrowser\.open\w*"),
        (FILES, r"os\.(remove|unlink|renames?|replace|makedirs|mkdir|rmdir|removedirs|symlink)"),
        (FILES, r"os\.(link|l?chmod|l?chown|f?truncate|utime|mkfifo|mknod|chdir|putenv|unsetenv)"),
        (FILES, r"os\.(pwritev?|sendfile|copy_file_range|f?ch(dir|mod|own)|(set|remove)xattr)"),
        (FILES, r"os\.O_(CREAT|WRONLY|RDWR|APPEND|TRUNC|EXCL|TMPFILE)"),
        (FILES, r"shutil\.(rmtree|copy\w*|move|chown|make_archive|unpack_archive)"),
        (FILES, rf"{_PATH}\.l?chmod|(zipfile\.ZipFile|tarfile\.TarFile)\.extract(all)?"),
        (USER, r"builtins\.input|getpass\.getpass|sys\.stdin|pandas\.(.*\.)?read_clipboard"),
        (LISTING, r"os\.(listdir|scandir|f?walk|l?stat|access|f?statvfs|readlink|(get|list)xattr)"),
        (LISTING, r"glob\.i?glob[01]?|shutil\.(disk_usage|which)"),
        (LISTING, r"(os|posix|nt)?\.?(path|genericpath)\.(l?exists|is(file|dir|link|mount))"),
        (LISTING, r"(os|posix|nt)?\.?(path|genericpath)\.(get([amc]time|size)|samefile)"),
        (LISTING, rf"{_PATH}\.{_LOOKS}"),
    )
)

#: Generators that repeat themselves if they are given anything to start from
SEEDED = re.compile(
    rf"random\.Random|({_RANDOM})\.random\."
    r"(default_rng|RandomState|SeedSequence|MT19937|PCG64(DXSM)?|Philox|SFC64)"
)
#: Files in memory: what is written there is gone with the call
BUFFERS = re.compile(
    r"(io|tempfile)\.(BytesIO|StringIO|SpooledTemporaryFile)|(.*\.)?tqdm"
    r"|pyarrow\.(lib\.)?BufferOutputStream|zarr\.(\w+\.)*MemoryStore"
)
#: Writing there is like printing
SCREEN = re.compile(r"sys\.(__)?std(out|err)(__)?(\.buffer)?|(.*\.)?tqdm")
#: Types whose values draw the next number each time
GENERATORS = frozenset(
    ("random.Random", "random.SystemRandom", "numpy.random.Generator", "numpy.random.RandomState")
)
#: Tell the time if they are called with so many arguments at the most
IDLE_CLOCKS = {
    "time.localtime": 0,
    "time.gmtime": 0,
    "time.ctime": 0,
    "time.asctime": 0,
    "time.strftime": 1,
}
#: Read "now" and "today" as the time of the call
DATES = re.compile(
    r"(.*\.)?(datetime64|Timestamp|to_datetime|(Datetime|Period)Index|Period|(b?date|period)_range)"
)
#: Open a file in a mode, which is their second argument
OPENERS = frozenset(
    "open open_file File ZipFile PyZipFile TarFile GzipFile BZ2File LZMAFile Dataset HDFStore"
    " FileIO OSFile memory_map memmap open_memmap open_array open_group fdopen".split()
)
#: tarfile adds ":gz" and the like
_WRITING = re.compile(r"(?=[rwaxbtU+\d-]{1,5}([:|]\w*)?$)[^wax+:|]*[wax+]")

_OPEN = r"open(_array|_group|_like|_memmap)?"
#: What is harmless to make, but not to ask or to fill: (reason, what makes it, its attributes)
MADE = tuple(
    (reason, re.compile(maker), re.compile(attribute))
    for reason, maker, attribute in (
        (CLOCK, r"_?asyncio\.(\w+\.)*(get_running_loop|(get|new)_event_loop)", r"time"),
        (UNIQUE, r"tempfile\.NamedTemporaryFile", r"name"),
        (
            CLUSTER,
            r"distributed\.(\w+\.)*((get|worker|default)_client|Client)|Client\.current",
            r"(get|set)_metadata|\w+_datasets?|scheduler_info|nthreads|ncores|nbytes|who_has"
            r"|has_what|processing|get_versions|log_event|get_events|run|run_on_scheduler",
        ),
        (FILES, r"tarfile\.open", r"extract(all)?"),
        (FILES, rf"zarr\.(\w+\.)*{_OPEN}", r"__setitem__|append|resize|(create|require)_\w+"),
        (FILES, r"numpy\.(\w+\.)*(open_)?memmap", r"__setitem__"),
        (DATABASE, r"shelve\.open", r"__setitem__"),
    )
)
#: Modes in which what is opened cannot be changed, or only in memory
KEEPING = frozenset(("r", "c", "rb"))
#: Methods that make a list another one with each call
GROWING = frozenset(("append", "extend", "insert", "pop"))
#: Methods of paths that look at files, and those that return paths again
LOOKS = re.compile(_LOOKS)
STEPS = frozenset(
    "parent absolute resolve expanduser joinpath relative_to with_name with_stem with_suffix"
    " __truediv__".split()
)
#: Methods that list folders, whoever has them
LISTERS = frozenset(("iterdir", "rglob"))
#: Functions that read a file, and files that are no files
READERS = re.compile(r"(.*\.)?(open|(Posix)?Path|read_\w+|load\w*|genfromtxt|fromfile)")
PSEUDO = ("/proc/", "/sys/")
#: Statements that change a database, and methods that only run for such
STATEMENTS = re.compile(
    r"\s*(insert|update|delete|create|drop|alter|replace|merge|truncate)\b", re.IGNORECASE
)
DATABASES = frozenset(("commit", "execute", "executemany", "executescript"))
#: Make a store on disk; the others do only if they are told these
STORES = re.compile(
    r"zarr\.(\w+\.)*(create|create_(array|group)|group|array|(zeros|ones|full|empty)(_like)?"
    rf"|copy(_all|_store)?|{_OPEN})"
)

#: Methods that draw rows or numbers, and the keywords of those of data frames and distributions
DRAWS = frozenset(("sample", "rvs"))
SEEDS = frozenset(("random_state", "seed", "rng"))
_ROWS = frozenset(("n", "frac", "fraction", "replace", "weights", "axis", "ignore_index", "size"))

#: Methods that are effects of paths, and harmless ones of data frames and strings
RENAMES = frozenset(("rename", "replace"))
_VERBS = re.compile(
    r"(?:save(?!d)|write(?!able|rs?$)|dump(?!s))\w*"
    r"|unlink|mkdir|rmdir|touch|rmtree|makedirs|symlink_to|hardlink_to|tofile"
    r"|\w*FileHandler|(?:Parquet|Excel)Writer|create_memory_map|(?:open_)?output_stream"
    r"|open_append_stream"
)
#: Conversions of other libraries than those that `admission` knows
_CONVERSIONS = re.compile(
    r"to_(bytes|crs|rgba?|hex|wk[bt]|coo|cs[cr]|dense|julian_date|offset|flat_index|cpu|gpu|tensor"
    r"|epsg|local|standard|utc|geo\w+|stacked\w*|categorical|one_hot|torch|jax|cupy|polars|lazy"
    r"|eager|physical|integral\w*|tz|epoch|py\w+|objects?|iter_\w+"
    r"|\w*(array|dataset|variable|time|delta|dict|list|string|tuple)(s|64|_\w+)?)"
)
#: Writers that return their text or bytes if nobody names a file
TEXTS = frozenset(
    f"to_{name}"
    for name in "csv json html latex markdown xml parquet orc feather netcdf zarr pickle".split()
)
#: Keywords that name a file
TARGETS = frozenset(
    "path path_or_buf path_or_buffer buf fname file filename filepath fp stream store url uri"
    " con name".split()
)
_TELLING = (DRAWS, OPENERS, RENAMES, LISTERS, DATABASES)


@lru_cache(10_000)
def reason_of(name: str) -> str | None:
    """What a full name says about purity.

    Examples
    --------
    >>> reason_of("numpy.random.normal"), reason_of("numpy.random.default_rng")
    ('uses random numbers', None)
    """
    return next((reason for reason, pattern in NAMES if pattern.fullmatch(name)), None)


def writes(verb: str) -> bool:
    """Whether a method with such a name writes files.

    Examples
    --------
    >>> [writes(verb) for verb in ("to_csv", "to_datetime", "savez", "dumps")]
    [True, False, True, False]
    """
    if verb.startswith("to_"):
        return effect_of(verb) is not None and _CONVERSIONS.fullmatch(verb) is None
    return _VERBS.fullmatch(verb) is not None


@lru_cache(10_000)
def is_verb(name: str) -> bool:
    """Whether a call of a method with such a name may tell something, whatever it belongs to."""
    return any(name in names for names in _TELLING) or writes(name)


def for_writing(mode: object) -> bool:
    """Whether a constant is a mode that opens files for writing.

    Examples
    --------
    >>> [for_writing(mode) for mode in ("w", "rb", "r+", "max", "w:gz", "r:xz", None)]
    [True, False, True, False, True, False, False]
    """
    return isinstance(mode, str) and _WRITING.match(mode) is not None


def draws_rows(positional: int, keywords: frozenset[str]) -> bool:
    """Whether a call of ``.sample`` with such arguments is one of a data frame, without a seed.

    The method of `random.Random` takes a population and a number, which no data frame does.
    """
    return positional < 2 and keywords <= _ROWS


def short(name: str, reason: str) -> str:
    """A full name as a user would write it."""
    if reason == NETWORK:
        return ".".join(name.split(".")[: 2 if name.startswith(("urllib.", "http.")) else 1])
    name = _HIDDEN.sub("", name)
    return ".".join(name.split(".")[-2:]) if reason == CLOCK else name


#: Modules that users do not know: numpy.save is in numpy.lib._npyio_impl
_HIDDEN = re.compile(r"(?<=\.)(?:_\w+|lib|core|generic)\.")
