"""What is measured: Terral, and what users have today, each as its documentation sets it up, with
all that it stores in memory (tmpfs): how it is put on the machines, how a program there gets to its
files, and what it promises, with where that is written."""

import os
import subprocess

from peers_machines import Fail, address, ended, last_line, until

MEMORY_MIB = 6  # times what a file has, for a server of Terral


class Product:
    """One of them. `place` is where its files are, `nfs`: its programs ask the server by libnfs."""

    name = ""
    place = ""
    nfs = False
    needs = {}  # program: package
    how = ""  # how it was set up
    after_close = ""  # what it promises when a file has been closed
    client_dies = ""
    server_dies = ""
    source = ""

    def __init__(self, terral, size_mib):
        self.terral = terral
        self.size_mib = size_mib

    def up(self, machines):
        """Puts it on the machines."""

    def env(self):
        """What a program there needs."""
        return None

    def down(self):
        """Ends what must not be killed."""


def let_in(machines):
    """An sshd on each machine, and how it is reached without a question: a file for `ssh -F`."""
    home = machines.home
    if not os.path.exists(f"{home}/key"):
        for name in ["key", "host_key"]:
            ended(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{home}/{name}"])
        with open(f"{home}/key.pub", encoding="ascii") as key:
            machines.write("authorized", key.read())
        server = f"HostKey {home}/host_key\nAuthorizedKeysFile {home}/authorized\nUsePAM no\n"
        server += "StrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
        server += "PidFile /run/sshd.pid\nSubsystem sftp internal-sftp\n"
        machines.write("sshd_config", server)
        for at, host in enumerate(machines.all):
            listen = f"ListenAddress={address(at)}"
            host.run(["/usr/sbin/sshd", "-f", f"{home}/sshd_config", "-o", listen])
    client = f"IdentityFile {home}/key\nIdentitiesOnly yes\nBatchMode yes\nLogLevel ERROR\n"
    client += f"StrictHostKeyChecking accept-new\nUserKnownHostsFile {home}/known\n"
    return machines.write("ssh_config", f"{client}Ciphers aes128-gcm@openssh.com\n")


class Terral(Product):
    """Without a permanent directory, as the others have none either."""

    place = "/terral"
    needs = {"/usr/sbin/sshd": "openssh-server"}
    after_close = "in the memory of the machine that wrote it; all see each write that has returned"
    client_dies = "what was written stays"
    server_dies = (
        "it is started again on its memory, nothing is lost; of a lost machine the files are EIO, "
        "by name, and the rest goes on"
    )
    source = "[semantics.md](semantics.md)"
    options = []

    def up(self, machines):
        config = let_in(machines)
        self.log = f"{machines.home}/{self.name}.log".replace(" ", "-")
        self.found = f"{machines.home}/{self.name}.env".replace(" ", "-")
        shell = machines.write("ssh", f'#!/bin/sh\nexec ssh -F {config} "$@"\n', 0o755)
        hosts = ",".join(f"h{at}" for at in range(len(machines.all)))
        memory = f"{max(512, self.size_mib * MEMORY_MIB)}M"
        command = [self.terral, "run", "--hosts", hosts, "--memory", memory, *self.options, "--"]
        script = f"env -0 > {self.found}.new && mv {self.found}.new {self.found}; cat"
        env = dict(os.environ, TERRAL_RSH=shell)
        self.run = machines.all[0].start([*command, "sh", "-c", script], self.log, env)
        until(f"{self.name} begins", lambda: self.run.poll() is not None or self.begun())
        if not self.begun():
            with open(self.log, encoding="utf-8", errors="replace") as said:
                raise Fail(f"{self.name}: {last_line(said.read())}")

    def begun(self):
        return os.path.exists(self.found)

    def env(self):
        with open(self.found, encoding="utf-8", errors="surrogateescape") as found:
            return dict(one.split("=", 1) for one in found.read().split("\0") if "=" in one)

    def down(self):
        if getattr(self, "run", None):
            self.run.stdin.close()
            try:
                self.run.wait(60)
            except subprocess.TimeoutExpired:
                pass  # it ends with its machine


class Plain(Terral):
    name = "Terral"
    how = "`terral run --hosts h0,h1,h2,h3 --no-encryption`"
    options = ["--no-encryption", "--instance", "peers-plain"]


class Sealed(Terral):
    name = "Terral, TLS"
    how = "`terral run --hosts h0,h1,h2,h3`"
    options = ["--instance", "peers-tls"]


class Sshfs(Product):
    name = "sshfs"
    place = "/mnt/sshfs"
    needs = {"/usr/sbin/sshd": "openssh-server", "sshfs": "sshfs"}
    how = "sshd on h0, `sshfs h0:/mnt/ssh` on all, as it comes; `aes128-gcm`, a fast cipher"
    after_close = "with h0's kernel; others may see older names and attributes, from a cache"
    client_dies = "what was not sent is lost: writes do not wait unless `-o sshfs_sync`"
    server_dies = (
        "calls wait until the connection has ended, and fail; what was on its way is lost; with "
        "`-o reconnect` it comes back, files that were open must be opened again"
    )
    source = "sshfs(1): `sshfs_sync`, `dcache_timeout`, `reconnect`, CAVEATS"

    def up(self, machines):
        config = let_in(machines)
        machines.all[0].shell("mkdir /mnt/ssh")
        for host in machines.all:
            host.shell(f"mkdir {self.place} && sshfs -F {config} h0:/mnt/ssh {self.place}")


class Gluster(Product):
    name = "GlusterFS"
    place = "/mnt/gluster"
    needs = {"glusterd": "glusterfs-server", "glusterfs": "glusterfs-client"}
    how = "a brick on each, a distributed volume, `mount -t glusterfs` on all, as it comes"
    after_close = (
        "with the brick's kernel, or on its way there: close does not wait (`flush-behind`); "
        "others may see attributes of 1 s before"
    )
    client_dies = "what write-behind still had, at most 1 MiB a file, is lost"
    server_dies = (
        "calls wait 42 s, then fail for what is on its brick, until it is back; replicated "
        "volumes, slower ones, go on"
    )
    source = (
        "`gluster volume set help`: `performance.flush-behind`, `.write-behind-window-size`, "
        "`.md-cache-timeout`, `network.ping-timeout`; docs.gluster.org, Setting Up Volumes"
    )

    def up(self, machines):
        first = machines.all[0]
        for host in machines.all:
            host.run(["glusterd"])
        bricks = [f"h{at}:/mnt/brick/data" for at in range(len(machines.all))]
        until("glusterd answers", lambda: answers(first, "gluster pool list"))
        for at in range(1, len(machines.all)):
            first.run(["gluster", "peer", "probe", f"h{at}"])
        for host in machines.all:
            host.shell("mkdir /mnt/brick && mount -t tmpfs tmpfs /mnt/brick")
        for host in machines.all:
            until("gluster's machines know each other", lambda h=host: knows_all(h, machines))
        first.run(["gluster", "--mode=script", "volume", "create", "peers", *bricks, "force"])
        first.run(["gluster", "--mode=script", "volume", "start", "peers"])
        for at, host in enumerate(machines.all):
            host.shell(f"mkdir {self.place}")
            mount = f"mount -t glusterfs h{at}:/peers {self.place}"
            until("gluster is mounted", lambda h=host, m=mount: answers(h, m))


GANESHA = """
NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = 2049; MNT_Port = 20048; Enable_NLM = false;
    Enable_RQUOTA = false; Enable_UDP = None; }}
NFSv4 {{ Graceless = true; }}
EXPORT {{ Export_Id = 77; Path = {path}; Pseudo = {path}; Access_Type = RW; Protocols = 3;
    Squash = No_Root_Squash; SecType = sys; Transports = TCP; Filesystem_Id = 77.77;
    FSAL {{ Name = VFS; }} }}
"""


class Ganesha(Product):
    name = "NFS-Ganesha"
    place = f"{address(0)}:/mnt/nfs"
    nfs = True
    needs = {"ganesha.nfsd": "nfs-ganesha nfs-ganesha-vfs", "rpcbind": "rpcbind"}
    how = (
        "NFSv3 of `/mnt/nfs` on h0 (FSAL VFS); for the kernel's client, which not all kernels have, "
        "stands libnfs: 8 calls under way, no cache of attributes"
    )
    after_close = "in h0's stable storage (COMMIT; memory here); who opens it after that sees it"
    client_dies = "what was not sent is lost, what was not committed may be"
    server_dies = (
        "calls wait until it is back (`hard`), and what was not committed is sent again; a lost "
        "machine holds up all"
    )
    source = "RFC 1813, 3.3.21, 4.8; nfs(5): Close-to-open, `hard` (of the kernel's client)"

    def up(self, machines):
        first = machines.all[0]
        config = machines.write("ganesha.conf", GANESHA.format(path="/mnt/nfs"))
        first.shell("mkdir /mnt/nfs && mount -t tmpfs tmpfs /mnt/nfs && rpcbind")
        log = "/var/log/ganesha/ganesha.log"
        self.server = first.start(
            ["ganesha.nfsd", "-F", "-L", log, "-f", config, "-p", "/run/ganesha.pid"]
        )
        listens = "cat /proc/net/tcp /proc/net/tcp6 | grep -qi ':0801 [0:]* 0A'"
        until("ganesha listens", lambda: self.server.poll() is not None or answers(first, listens))
        if self.server.poll() is not None:
            raise Fail(f"{self.name}: {last_line(first.shell(f'cat {log}'))}")


ALL = [Plain, Sealed, Sshfs, Gluster, Ganesha]


def answers(host, script):
    """Whether that line of a shell ends well there."""
    try:
        host.shell(script)
    except Fail:
        return False
    return True


def knows_all(host, machines):
    """Whether gluster's server there is connected to all others."""
    try:
        states = [line.split()[-1] for line in host.shell("gluster pool list").splitlines()[1:]]
    except Fail:
        return False
    return states == ["Connected"] * len(machines.all)
