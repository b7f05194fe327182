#!/usr/bin/env python3
"""Terral beside what users have today: sshfs, GlusterFS and NFS-Ganesha, on four machines made of
namespaces, all with what they store in memory. Each product in turn does all cases, round after
round, forwards and backwards; a first round is not counted. All bytes are compared."""

import sys

sys.dont_write_bytecode = True

import argparse  # noqa: E402
import datetime  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import select  # noqa: E402
import shutil  # noqa: E402
import signal  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import time  # noqa: E402

import peers_products  # noqa: E402
from peers_machines import LONG, Fail, Machines, ended, last_line  # noqa: E402

EXAMPLES = """examples:
  demo/peers.py                                  # all of them, five rounds; the table
  demo/peers.py --only terral,nfs --rounds 3     # some of them
  demo/peers.py --json target/peers.json         # the figures, for programs
  demo/peers.py --markdown docs/benchmarks.md    # the table, between its <!-- peers --> marks
  demo/peers.py --from target/peers.json         # the table of earlier figures; nothing is measured

It needs root, some packages, and some minutes. All that it starts is in namespaces of its own and
ends with it. make peers installs the packages and starts none of their services; at the next boot
they start unless they are disabled (ssh, rpcbind, glusterd, nfs-ganesha)."""

HERE = os.path.dirname(os.path.abspath(__file__))
MACHINES = 4
AT_REST = 1.5  # seconds after which nobody takes a directory for busy any more
MARK = "<!-- peers -->"

# Figure, what it is, its unit.
CASES = [
    ("both", "h1 writes a file and then h2 reads it, both together", "GB/s"),
    ("write", "h1 writes it, until close has returned", "GB/s"),
    ("read", "h2 reads it, for the first time there", "GB/s"),
    ("home", "h1 overwrites a file of h0 while h2 reads it, bytes of both", "GB/s"),
    ("creates", "creates in one directory by all four, together", "a second"),
    ("slowest", "creates by the slowest of the four", "a second"),
    ("first", "h2 asks for the sizes of {stats} files that h1 made, 1.5 s after that", "a second"),
    ("again", "h2 asks for them once more", "a second"),
]


def ready(process, name):
    """Waits until a program says that it is."""
    if not select.select([process.stdout], [], [], LONG)[0]:
        raise Fail(f"{name}: a program is not ready in {LONG} s")
    line = process.stdout.readline()
    if line != "ready\n":
        raise Fail(f"{name}: {line.strip() or 'a program ended'}")


class Bench:
    """Products that are up, on machines, and programs that use them."""

    def __init__(self, machines, programs, much):
        self.machines = machines
        self.programs = programs
        self.much = much

    def command(self, product, words):
        env = product.env() or {}
        passed = [key for key in env if key == "LD_PRELOAD" or key.startswith("TERRAL_")]
        given = [f"{key}={env[key]}" for key in passed]
        return ["env", *given, self.programs[product.nfs], *map(str, words)]

    def does(self, product, at, *words):
        """A program on a machine does something that is not timed."""
        return self.machines.all[at].run(self.command(product, words))

    def together(self, product, jobs):
        """Programs that begin at once; of each, when it began, was halfway and ended."""
        log = f"{self.machines.home}/said"
        started = []
        try:
            for at, *words in jobs:
                started.append(self.machines.all[at].start(self.command(product, words), log))
            for process in started:
                ready(process, product.name)
            for process in started:
                process.stdin.write("go\n")
                process.stdin.flush()
            return [self.ended(product, process, job) for process, job in zip(started, jobs)]
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()  # nsenter; the program ends with its machine
                process.wait()
                process.stdin.close()
                process.stdout.close()

    def ended(self, product, process, job):
        try:
            said = process.communicate(timeout=LONG)[0]
        except subprocess.TimeoutExpired:
            raise Fail(f"{product.name}: {job[1]} takes more than {LONG} s") from None
        words = said.split()
        if process.returncode or words[:1] != ["ok"]:
            raise Fail(f"{product.name}: {job[1]} on h{job[0]}: {last_line(said)}")
        return [int(word) for word in words[1:4]]

    def round(self, product, number):
        """All cases once."""
        top = product.place
        places = [f"r{number}", f"r{number}c", f"r{number}s"]
        files, names, looks = [f"{top}/{place}" for place in places]
        for at, place in zip([0, 0, 1], places):
            self.does(product, at, "directory", top, place)
        found = {**self.bytes(product, files, number), **self.names(product, names)}
        found.update(self.looks(product, looks))
        for place in places:
            self.does(product, 0, "empty", f"{top}/{place}", ".")
            self.does(product, 0, "remove", top, place)
        return found

    def bytes(self, product, place, number):
        size, seed = self.much.size, number * 10
        (begin, _, end), = self.together(product, [(1, "write", place, "big", size, seed + 1)])
        wrote = end - begin
        (begin, _, end), = self.together(product, [(2, "read", place, "big", size, seed + 1)])
        read = end - begin
        self.together(product, [(0, "write", place, "own", size, seed + 2)])
        writer = (1, "overwrite", place, "own", size, seed + 3)
        reader = (2, "read", place, "own", size, seed + 3, seed + 2)
        took = span(self.together(product, [writer, reader]))
        self.together(product, [(3, "read", place, "own", size, seed + 3)])
        count = size << 20
        rates = {"both": count / (wrote + read), "write": count / wrote, "read": count / read}
        return {**rates, "home": 2 * count / took}

    def names(self, product, place):
        count = self.much.creates
        jobs = [(at, "create", place, f"h{at}.", count) for at in range(MACHINES)]
        times = self.together(product, jobs)
        there = int(self.does(product, 3, "count", place, "."))
        if there != MACHINES * count:
            raise Fail(f"{product.name}: {there} names of {MACHINES * count} are there")
        slowest = max(end - begin for begin, _, end in times)
        creates = MACHINES * count * 1e9 / span(times)
        return {"creates": creates, "slowest": count * 1e9 / slowest}

    def looks(self, product, place):
        count = self.much.stats
        self.together(product, [(1, "create", place, "s", count)])
        time.sleep(AT_REST)
        (begin, middle, end), = self.together(product, [(2, "stat", place, "s", count)])
        return {"first": count * 1e9 / (middle - begin), "again": count * 1e9 / (end - middle)}


def span(times):
    """Nanoseconds from the first begin to the last end."""
    return max(end for *_, end in times) - min(begin for begin, *_ in times)


def compiled(home):
    """The timed program: by POSIX, and by libnfs."""
    programs = []
    for name, options in [("posix", []), ("nfs", ["-DNFS", "-lnfs"])]:
        out = f"{home}/{name}"
        source = os.path.join(HERE, "peers.c")
        command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", out, source, *options]
        try:
            ended(command, "demo/peers.c")
            programs.append(out)
        except Fail:
            if not options:
                raise
            programs.append(None)
    return programs


def lacking(product):
    """Packages that it needs and that are not there."""
    return [package for program, package in product.needs.items() if not shutil.which(program)]


def measured(wanted, say):
    """The figures of all rounds, of each product."""
    figures, failed, load = {}, {}, os.getloadavg()[0]
    with Machines(MACHINES) as machines:
        programs = compiled(machines.home)
        bench = Bench(machines, programs, wanted)
        up = []
        try:
            for kind in wanted.products:
                product = kind(wanted.terral, wanted.size)
                begins(product, machines, programs, up, failed, say)
            for number in range(wanted.rounds + 1):
                turn = up if number % 2 else up[::-1]
                for product in [one for one in turn if one.name not in failed]:
                    say(f"round {number} of {wanted.rounds}: {product.name}")
                    try:
                        found = bench.round(product, number)
                    except Fail as fault:
                        failed[product.name] = str(fault)
                        say(str(fault))
                        continue
                    for case, value in found.items() if number else []:
                        figures.setdefault(product.name, {}).setdefault(case, []).append(value)
        finally:
            for product in up:
                product.down()
    return {"machine": machine(load), **much(wanted), "figures": figures, "failed": failed}


def begins(product, machines, programs, up, failed, say):
    """A product comes up, or it is said why not."""
    say(f"starts {product.name}")
    try:
        missing = lacking(product)
        if product.nfs and not programs[1]:
            missing.append("libnfs-dev")
        if product.nfs:
            say(f"{product.name}: its client is libnfs ({kernel()})")
        if missing:
            raise Fail(f"{product.name}: it is not here: apt-get install {' '.join(missing)}")
        up.append(product)
        product.up(machines)
    except Fail as fault:
        failed[product.name] = str(fault)
        say(str(fault))


def kernel():
    """Whether the kernel has an NFS client."""
    with open("/proc/filesystems", encoding="ascii") as there:
        has = any(line.split()[-1] in ("nfs", "nfs4") for line in there)
    return "the kernel's, which is there, is left alone" if has else "the kernel has none"


def machine(load):
    """Where it was measured, and when."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "processor": model[0] if model else os.uname().machine,
        "cores": os.cpu_count(),
        "kernel": os.uname().release,
        "time": now.strftime("%Y-%m-%d %H:%M UTC"),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
    }


def much(wanted):
    """How much of everything."""
    return {name: getattr(wanted, name) for name in ["rounds", "size", "creates", "stats"]}


def shown(value):
    """A figure, with as many digits as mean something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cell(values):
    """The median, least and greatest."""
    if not values:
        return "–"
    return f"{shown(statistics.median(values))} ({shown(min(values))}–{shown(max(values))})"


def against(figures, name, others, case):
    """How many times the best of the others a product reaches, in the same rounds; who that is."""
    ours = figures.get(name, {}).get(case)
    theirs = {one: figures[one][case] for one in others if figures.get(one, {}).get(case)}
    if not ours or not theirs:
        return "–", ""
    best = max(theirs, key=lambda one: statistics.median(theirs[one]))
    ratios = [mine / yours for mine, yours in zip(ours, theirs[best])]
    return f"{statistics.median(ratios):.2g}", best


def row(cells):
    return "| " + " | ".join(cells) + " |\n"


def table(found):
    """What was found, as Markdown."""
    figures, failed = found["figures"], found["failed"]
    kinds = [kind for kind in peers_products.ALL if kind.name in {**figures, **failed}]
    ours = [kind.name for kind in kinds if issubclass(kind, peers_products.Terral)]
    others = [kind.name for kind in kinds if kind.name not in ours]
    best = [f"{name} ÷ best other" for name in ours] if others else []
    names = [*ours, *others]
    text = caption(found) + "\n" + row(["", *names, *best])
    text += "|" + "---|" * (1 + len(names) + len(best)) + "\n"
    for case, what, unit in CASES:
        ratios = [against(figures, name, others, case) for name in ours] if best else []
        cells = [cell(figures.get(name, {}).get(case)) for name in names]
        cells += [f"**{ratio}** {who}" if who else ratio for ratio, who in ratios]
        text += row([f"{what.format(**found)}, {unit}", *cells])
    text += "".join(behind(figures, name, others) for name in ours)
    text += "".join(f"\nNot measured: {why}\n" for why in failed.values())
    return text + "\n" + promises(kinds)


def behind(figures, name, others):
    """Where another one is better, said plainly."""
    found = []
    for case, what, _ in CASES:
        ratio, who = against(figures, name, others, case)
        if who and float(ratio) < 1:
            found.append(f"*{what.split(',')[0].format(stats='many')}* ({ratio} of {who})")
    return f"\n**{name}** is behind in: {'; '.join(found)}.\n" if found else ""


def caption(found):
    """Where it was measured, and how."""
    at, load = found["machine"], found["machine"]["load"]
    noisy = load[0] > at["cores"] / 4
    return (
        f"Written by `make peers` (`demo/peers.py --markdown`). Four machines of namespaces on "
        f"{at['cores']} cores, a bridge between them: {at['processor']}, Linux {at['kernel']}; "
        f"{at['time']}; load {load[0]} before, {load[1]} at the end. {found['rounds']} rounds, "
        f"median (least–greatest); files of {found['size']} MiB in calls of 1 MiB, "
        f"{found['creates']} creates a machine. All that is stored is in memory, no disk is in it. "
        "More is better. *÷*: beside the best of the others, in the same rounds; below 1 Terral is "
        "behind. All machines share these cores: what takes processor time, as encryption does, "
        "weighs more here than on machines of their own."
        f"{' The machine had other work to do: these figures are noisy.' if noisy else ''}\n"
    )


def promises(kinds):
    """What stands behind a figure: how it was set up, and what is promised."""
    text = row(["", "set up", "when a file was closed", "a client dies", "a server dies", "from"])
    text += "|" + "---|" * 6 + "\n"
    for kind in kinds:
        says = [kind.how, kind.after_close, kind.client_dies, kind.server_dies, kind.source]
        text += row([f"{kind.name}", *says])
    return text


def replaced(page, text):
    """A page with other text between its marks."""
    parts = page.split(MARK)
    if len(parts) != 3:
        raise Fail(f"the page has not two lines {MARK}: it is left as it is")
    return f"{parts[0]}{MARK}\n{text.strip()}\n{MARK}{parts[2]}"


def chosen(words):
    """The products of which the names begin so, or have it in them."""
    if not words:
        return peers_products.ALL
    found = []
    for word in words.split(","):
        some = [kind for kind in peers_products.ALL if word.strip().lower() in kind.name.lower()]
        if not word.strip() or not some:
            names = "; ".join(kind.name for kind in peers_products.ALL)
            raise Fail(f"--only {word}: there are {names}")
        found += some
    return [kind for kind in peers_products.ALL if kind in found]


def positive(text):
    """A number of something."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is too little")
    return value


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    terral = os.path.join(HERE, "..", "target", "release", "terral")
    parser.add_argument("--rounds", type=positive, default=5, help="rounds that count (5)")
    parser.add_argument("--only", default="", metavar="NAMES", help="some products: terral,sshfs,…")
    parser.add_argument("--size", type=positive, default=256, help="MiB of a file (256)")
    parser.add_argument("--creates", type=positive, default=1000, help="files a machine (1000)")
    parser.add_argument("--stats", type=positive, default=2000, help="files asked for (2000)")
    parser.add_argument("--terral", default=terral, metavar="PROGRAM", help="the build to measure")
    parser.add_argument("--json", metavar="FILE", help="writes the figures (-: standard output)")
    parser.add_argument("--markdown", metavar="PAGE", help="puts the table between its marks")
    parser.add_argument("--from", dest="earlier", metavar="FILE", help="figures of --json, again")
    return parser.parse_args()


def read(path):
    """A file's text, or one line that says why not."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as fault:
        raise Fail(f"{path}: {getattr(fault, 'strerror', None) or 'is no text'}") from None


def earlier(path):
    """Figures that --json has written."""
    try:
        found = json.loads(read(path))
        table(found)
        return found
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Fail(f"{path}: is not what --json writes") from None


def written(path, text):
    """Writes a file whole."""
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{path}.new", path)
    except OSError as fault:
        raise Fail(f"{path}: {fault.strerror}") from None


def run(wanted):
    wanted.products = chosen(wanted.only)
    page = read(wanted.markdown) if wanted.markdown else None
    if page is not None:
        replaced(page, "")  # said before anything takes minutes
    if wanted.earlier:
        found = earlier(wanted.earlier)
    else:
        wanted.terral = os.path.abspath(wanted.terral)
        if not os.access(wanted.terral, os.X_OK):
            raise Fail(f"{wanted.terral}: not there: make release")
        found = measured(wanted, lambda line: print(f"peers: {line}", file=sys.stderr, flush=True))
    text = table(found)
    if wanted.json:
        written(wanted.json, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if page is not None:
        written(wanted.markdown, replaced(page, text))
    if wanted.json != "-":
        print(text)
    return 1 if found["failed"] else 0


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(129))
    try:
        return run(arguments())
    except Fail as fault:
        print(f"peers: {fault}", file=sys.stderr)
        return 1
    except OSError as fault:
        print(f"peers: {fault.filename or 'a program'}: {fault.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("peers: interrupted; nothing is left", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
