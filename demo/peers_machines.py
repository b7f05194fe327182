"""Machines of namespaces: each has a network, mounts, processes and a name of its own; all are on
one switch. Whatever runs on one, and is mounted there, ends with its first process, and that ends
when this program does, however it ends."""

import os
import shutil
import signal
import subprocess
import tempfile
import time

LONG = 120  # seconds that nothing here takes


class Fail(Exception):
    """What is said in one line."""


def last_line(text):
    """The line that says most, of what a program said."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def until(what, holds, seconds=LONG):
    """Waits until something is so."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise Fail(f"{what}: not in {seconds} s")
        time.sleep(0.1)


def ended(command, name=None, env=None):
    """Runs a program, and has what it said."""
    name = name or " ".join(command)[:80]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=LONG,
            start_new_session=True,
            env=env,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Fail(f"{name}: not done in {LONG} s") from None
    except OSError as fault:
        raise Fail(f"{name}: {fault.strerror}") from None
    if done.returncode:
        raise Fail(f"{name}: {last_line(done.stderr or done.stdout)}")
    return done.stdout


class Holder:
    """The first process of some namespaces."""

    def __init__(self, kinds, begin):
        command = ["unshare", "--fork", "--pid", "--mount", "--mount-proc", "--kill-child", *kinds]
        # It ends when its input does, which is when this program has ended.
        script = f"{begin} && echo ready && read -r line"
        self.process = subprocess.Popen(
            [*command, "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if self.process.stdout.readline() != "ready\n":
            said = last_line(self.process.stderr.read())
            raise Fail(f"a machine of namespaces cannot be made: {said}")
        self.pid = ended(["ps", "-o", "pid=", "--ppid", str(self.process.pid)]).split()[0]

    def within(self, command):
        """That command, in these namespaces."""
        spaces = ["-n", "-m", "-u", "-i", "-p"]
        return ["nsenter", "-t", self.pid, *spaces, "--", *command]

    def run(self, command, env=None):
        """Runs it there, and has what it said."""
        return ended(self.within(command), " ".join(command)[:80], env)

    def shell(self, script):
        """The same of a line of a shell."""
        return self.run(["sh", "-c", script])

    def start(self, command, log=None, env=None):
        """Starts it there, to be talked to; what it complains of goes to a file."""
        with open(log or os.devnull, "ab") as said:
            return subprocess.Popen(
                self.within(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,
                env=env,
            )

    def end(self):
        """Ends all that runs there."""
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)  # and its child with it
            self.process.wait()


# Directories that a machine has for itself, as far as there are any, and what servers expect in
# them; `/mnt` is where all is mounted.
OWN = {
    "/dev/shm": [],
    "/mnt": [],
    "/run": ["sshd", "rpcbind"],
    "/var/lib/glusterd": [],
    "/var/lib/nfs": ["ganesha"],
    "/var/log": ["glusterfs", "ganesha"],
}


class Machines:
    """Some of them, `h0` the first, and a directory that all see."""

    def __init__(self, count):
        if os.geteuid():
            raise Fail("machines of namespaces need root: sudo make peers")
        for program in ["ip", "unshare", "nsenter", "ps"]:
            if not shutil.which(program):
                raise Fail(f"{program} is not there: apt-get install iproute2 util-linux procps")
        self.home = tempfile.mkdtemp(prefix="terral-peers.")
        self.all = []
        self.switch = None
        try:
            self.make(count)
        except BaseException:
            self.end()
            raise

    def make(self, count):
        hosts = "".join(f"{address(at)} h{at}\n" for at in range(count))
        self.write("hosts", f"127.0.0.1 localhost\n{hosts}")
        bridge = "ip link set lo up && ip link add br0 type bridge && ip link set br0 up"
        self.switch = Holder(["--net"], bridge)
        for at in range(count):
            steps = [f"hostname h{at}", f"mount --bind {self.home}/hosts /etc/hosts"]
            for place, inner in OWN.items():
                if os.path.isdir(place):
                    steps.append(f"mount -t tmpfs -o mode=1777 tmpfs {place}")
                    steps += [f"mkdir {place}/{one}" for one in inner]
            begin = " && ".join([*steps, "ip link set lo up"])
            self.all.append(Holder(["--net", "--uts", "--ipc"], begin))
            self.plug(at)

    def plug(self, at):
        """A cable from a machine to the switch."""
        host, link = self.all[at], f"v{at}"
        pair = ["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0"]
        ended(["nsenter", "-t", self.switch.pid, "-n", "--", *pair, "netns", host.pid])
        self.switch.shell(f"ip link set {link} master br0 && ip link set {link} up")
        host.shell(f"ip addr add {address(at)}/24 dev eth0 && ip link set eth0 up")

    def write(self, name, text, mode=0o600):
        """A file that all see."""
        path = os.path.join(self.home, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def end(self):
        """Nothing of them is left, be it that somebody is impatient."""
        kinds = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
        before = [(one, signal.signal(one, signal.SIG_IGN)) for one in kinds]
        for holder in [*self.all, self.switch]:
            if holder:
                holder.end()
        shutil.rmtree(self.home, ignore_errors=True)
        for one, was in before:
            signal.signal(one, was)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def address(at):
    """Where a machine is."""
    return f"10.77.0.{at + 1}"
