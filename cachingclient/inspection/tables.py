"""Names of what makes a result differ from call to call, and of what is only named like it."""

from __future__ import annotations

import re
from functools import lru_cache

from cachingclient.admission import effect_of

CLOCK = "reads the clock"
RANDOM = "uses random numbers"
UNIQUE = "makes unique ids"
ENVIRONMENT = "reads the environment"
NETWORK = "talks to the network"
PROGRAMS = "runs other programs"
FILES = "writes files"
USER = "asks the user"
LISTING = "looks at the file system"
GLOBAL = "changes a global"
STATE = "draws from a random generator that lives on between calls"

_NETWORK = (
    "socket|requests|httpx|aiohttp|urllib3|boto3|botocore|aiobotocore|s3fs|minio|paramiko|ftplib"
    "|smtplib|imaplib|poplib|telnetlib|websockets?|grpc|pycurl"
)
#: Modules with functions as in numpy.random
_RANDOM = "numpy|cupy|dask.array"

#: Extend by a line: the first pattern that matches a whole name decides.
NAMES = tuple(
    (reason, re.compile(pattern))
    for reason, pattern in (
        (CLOCK, r"time\.(time|monotonic|perf_counter|process_time|thread_time)(_ns)?"),
        (CLOCK, r"time\.clock\w*|timeit\.default_timer"),
        (CLOCK, r"(.*\.)?(datetime|date|Timestamp|Period)\.(now|utcnow|today)"),
        (RANDOM, r"random\.([a-z]\w*|SystemRandom)|secrets\.(?!compare)\w+"),
        (RANDOM, rf"({_RANDOM})\.random\.(?!default_rng|mtrand|bit_gen|get_state|test)[a-z]\w*"),
        (RANDOM, r"torch\.(rand(n|int|perm)?(_like)?|normal|bernoulli|multinomial)"),
        (RANDOM, r"os\.(urandom|getrandom)"),
        (UNIQUE, r"uuid\.uuid[14]"),
        (ENVIRONMENT, r"os\.(environb?|getenvb?|getpid|getppid|getlogin)|platform\.node"),
        (ENVIRONMENT, r"threading\.get_(native_id|ident)"),
        (NETWORK, rf"({_NETWORK})(\..*)?|urllib\.request(\..*)?|http\.(client|server)(\..*)?"),
        (PROGRAMS, r"subprocess\.(run|Popen|call|check_\w+|get\w+output)"),
        (PROGRAMS, r"os\.(system|popen|posix_spawn\w*|spawn\w+|exec[lv]\w*|fork\w*|kill\w*)"),
        (FILES, r"os\.(remove|unlink|renames?|replace|makedirs|mkdir|rmdir|removedirs|symlink)"),
        (FILES, r"os\.(link|l?chmod|l?chown|f?truncate|utime|mkfifo|mknod|chdir|putenv|unsetenv)"),
        (FILES, r"shutil\.(rmtree|copy\w*|move|chown|make_archive|unpack_archive)"),
        (USER, r"builtins\.input"),
        (LISTING, r"os\.(listdir|scandir|f?walk|l?stat|access)|glob\.i?glob"),
        (
            LISTING,
            r"(os|posix|nt)?\.?(path|genericpath)\.(l?exists|is(file|dir|link)|get[amc]time)",
        ),
    )
)

#: Generators that repeat themselves if they are given anything to start from
SEEDED = re.compile(
    rf"random\.Random|({_RANDOM})\.random\."
    r"(default_rng|RandomState|SeedSequence|MT19937|PCG64(DXSM)?|Philox|SFC64)"
)
#: Files in memory: what is written there is gone with the call
BUFFERS = re.compile(r"(io|tempfile)\.(BytesIO|StringIO|SpooledTemporaryFile)|(.*\.)?tqdm")
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
DATES = re.compile(r"(.*\.)?(datetime64|Timestamp|to_datetime|Period|DatetimeIndex)")
#: Open a file in a mode, which is their second argument
OPENERS = frozenset(
    "open open_file File ZipFile TarFile GzipFile BZ2File LZMAFile Dataset HDFStore FileIO".split()
)
_WRITING = re.compile(r"(?=[rwaxbtU+\d-]{1,5}$)[^wax+]*[wax+]")

#: Methods that draw rows or numbers, and the keywords of those of data frames and distributions
DRAWS = frozenset(("sample", "rvs"))
SEEDS = frozenset(("random_state", "seed", "rng"))
_ROWS = frozenset(("n", "frac", "fraction", "replace", "weights", "axis", "ignore_index", "size"))

#: Methods that are effects of paths, and harmless ones of data frames and strings
RENAMES = frozenset(("rename", "replace"))
_VERBS = re.compile(
    r"(?:save(?!d)|write(?!able|rs?$)|dump(?!s))\w*"
    r"|unlink|mkdir|rmdir|touch|rmtree|makedirs|symlink_to|hardlink_to"
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
    return name in DRAWS or name in OPENERS or name in RENAMES or writes(name)


def for_writing(mode: object) -> bool:
    """Whether a constant is a mode that opens files for writing.

    Examples
    --------
    >>> [for_writing(mode) for mode in ("w", "rb", "r+", "max", None)]
    [True, False, True, False, False]
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
