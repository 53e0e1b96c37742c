"""Sources of users' functions: pure ones, ones that write in place, and ones that are not pure.

The results of the impure ones are the same each time, so that everything can be compared;
whether they were run again is told by their calls, and by the files that they write.
"""

from __future__ import annotations

import random

#: {sort of value: expressions of x and n}
PURE = {
    "array": (
        "x + {n}",
        "x * {n}",
        "x - x.min() + {n}",
        "np.sort(x) + {n}",
        "np.where(x > {n}, x, 0)",
    ),
    "frame": (
        "x.assign(b=x.b + {n})",
        "x.assign(b=x.b * {n}, a=x.a % 3)",
        "x[x.b > {n}]",
        "x.assign(b=x.b.where(x.a > 1, {n}))",
    ),
    "number": ("x + {n}", "x * {n}", "x - {n}", "max(x, {n})"),
    "list": ("x + [{n}]", "[v + {n} for v in x]", "sorted(x, reverse=True)", "x[1:] + [{n}]"),
    "dict": ("{{**x, 'k': {n}}}", "{{k: v + {n} for k, v in x.items()}}"),
    "text": ("x.upper() + '{n}'", "x + '{n}'"),
}

#: The same as statements that change x
INPLACE = {
    "array": (
        "x += {n}; return x",
        "x *= {n}; return x.copy()",
        "x[:1] = {n}; return x",
        "np.add(x, {n}, out=x); return x",
        "x.sort(); return x + {n}",
        "x.fill({n}); return x",
        "np.negative(x, x); return x",
        "y = x.reshape(-1); y[0] = {n}; return x + 0",
    ),
    "frame": (
        "x['b'] = x['b'] * {n}; return x",
        "x.loc[:, 'b'] = {n}; return x.copy()",
        "x.sort_values('b', ascending=False, inplace=True); return x",
        "x['b'] += {n}; return x[['a', 'b']]",
        "x.insert(0, 'z', {n}); x['b'] = x.pop('z') + x['b']; return x",
        "x.reset_index(drop=True, inplace=True); x['a'] = {n}; return x",
        "x.iloc[:1, 1] = {n}; return x",
    ),
    "list": (
        "x.append({n}); return x",
        "x.sort(reverse=True); return x + [{n}]",
        "x[0] = {n}; return x",
        "x.extend([{n}] * 2); return list(x)",
        "x.clear(); x.append({n}); return x",
        "x += [{n}]; return x",
        "x.insert(0, x.pop()); return x",
    ),
    "dict": (
        "x['k'] = {n}; return x",
        "x.update(k={n}); return dict(x)",
        "x.clear(); x['k'] = {n}; return x",
        "x.setdefault('m', {n}); return x",
    ),
}

#: Numbers that come from something impure, and are 1 each time
IMPURE = (
    "int(time.time() > 0)",
    "int(random.random() < 2)",
    "int(np.random.rand() < 2)",
    "int(np.random.default_rng().random() < 2)",
    "int(len(str(uuid.uuid4())) == 36)",
    "int(datetime.now().year > 2000)",
    "int(len(os.urandom(2)) == 2)",
    "int(clock() > 0)",
    "int(stamp() > 0)",
    "tick()",
    "log({tag!r})",
)

#: How an impure number comes into a result
_USES = {
    "array": "x + {n} * {one}",
    "frame": "x.assign(b=x.b + {n} * {one})",
    "number": "x + {n} * {one}",
    "list": "x + [{n} * {one}]",
    "dict": "{{**x, 'k': {n} * {one}}}",
    "text": "x * {one} + '{n}'",
}

#: What users' functions call, defined as in a notebook
PRELUDE = """
def stamp():
    return time.time()

ticks = 0

def tick():
    global ticks
    ticks = ticks + 1
    return 1

def log(tag):
    with open(HERE + "/log-" + tag, "a") as f:
        return f.write("1\\n") // 2
"""


def pure(rng: random.Random, name: str, sort: str, counts: bool = False) -> str:
    """Source of a pure function: a def, a closure, a lambda, a partial or an instance."""
    value = rng.choice(PURE[sort]).format(n=rng.randint(1, 9))
    if counts:
        return f"def {name}(x):\n    count({name!r})\n    sleep(0.002)\n    return {value}"
    return rng.choice(_SHAPES).format(name=name, value=value, n=rng.randint(1, 9))


_SHAPES = (
    *["def {name}(x):\n    sleep(0.002)\n    return {value}"] * 4,
    "def make_{name}(k):\n    def {name}(x):\n        sleep(0.002 * k)\n        return {value}\n"
    "    return {name}\n{name} = make_{name}({n} % 2)",
    "{name} = lambda x: {value}",
    "def part_{name}(k, x):\n    return {value}\n{name} = partial(part_{name}, {n})",
    "class Class_{name}:\n    def __call__(self, x):\n        return {value}\n"
    "{name} = Class_{name}()",
)


def inplace(rng: random.Random, name: str, sort: str) -> str:
    """Source of a function that changes what it gets."""
    body = rng.choice(INPLACE[sort]).format(n=rng.randint(1, 9))
    return f"def {name}(x):\n    sleep(0.002)\n    {body}"


def impure(rng: random.Random, name: str, sort: str) -> str:
    """Source of a function that counts its calls, and is not pure."""
    one = rng.choice(IMPURE).format(tag=name)
    value = _USES[sort].format(n=rng.randint(1, 9), one=one)
    return f"def {name}(x):\n    count({name!r})\n    return {value}"


def failing(rng: random.Random, name: str) -> str:
    """Source of a function that raises, each time or the first time."""
    when = rng.choice(("if True", f"if first({name + str(rng.random())!r})"))
    n = rng.randint(1, 9)
    return f"def {name}(x):\n    {when}:\n        raise ValueError('no {n}')\n    return x + {n}"
