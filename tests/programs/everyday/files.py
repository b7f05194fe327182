"""What Python programs do with files; run in an empty directory. Prints one line per topic."""
import ctypes
import errno
import filecmp
import glob
import gzip
import mmap
import multiprocessing
import os
import pathlib
import select
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import zipfile

HERE = os.getcwd()
TOPICS = []


def topic(function):
    TOPICS.append(function)
    return function


@topic
def calls():
    os.makedirs("a/b/c")
    pathlib.Path("a/f").write_text("x" * 1000)
    os.rename("a/f", "a/g")
    os.replace("a/g", "a/f")
    fd = os.open("a/f", os.O_RDWR)
    os.pwrite(fd, b"yy", 3)
    assert os.pread(fd, 4, 2) == b"xyyx"
    os.lseek(fd, 0, os.SEEK_END)
    os.write(fd, b"z")
    os.ftruncate(fd, 500)
    os.fsync(fd)
    size = os.fstat(fd).st_size
    os.close(fd)
    os.chmod("a/f", 0o600)
    os.utime("a/f", (1e9, 2e9))
    return sorted(os.listdir("a")), size, os.stat("a/f").st_mtime, oct(os.stat("a/f").st_mode)


@topic
def directories():
    fd = os.open("a", os.O_RDONLY)
    open("q", "w").close()
    os.rename("q", "qq", dst_dir_fd=fd)
    os.mkdir("m", dir_fd=fd)
    found = os.stat("qq", dir_fd=fd).st_size, sorted(os.listdir(fd))
    os.rmdir("m", dir_fd=fd)
    os.unlink("qq", dir_fd=fd)
    with os.scandir(fd) as entries:
        seen = sorted((e.name, e.is_dir(), e.inode() == e.stat().st_ino) for e in entries)
    raw = ctypes.CDLL(None).getdents64(fd, ctypes.create_string_buffer(4096), 4096) > 0
    os.fchdir(fd)
    here = os.path.relpath(os.getcwd(), HERE)
    os.chdir(HERE)
    os.close(fd)
    walked = [(r, sorted(d), sorted(f)) for r, d, f, _ in os.fwalk("a")]
    return found, seen, raw, here, walked


@topic
def trees():
    shutil.copytree("a", "a2")
    shutil.copy2("a/f", "a/h")
    shutil.move("a2", "a3")
    shutil.rmtree("a3")
    shutil.make_archive("archive", "zip", "a")
    shutil.make_archive("archive", "gztar", "a")
    shutil.unpack_archive("archive.zip", "un")
    shutil.unpack_archive("archive.tar.gz", "un2")
    os.remove("archive.zip")
    os.remove("archive.tar.gz")
    return shutil.disk_usage(".").total > 0, filecmp.cmp("un/f", "a/f"), filecmp.cmp("un2/f", "a/h")


@topic
def temporary():
    with tempfile.TemporaryDirectory(dir=".") as name:
        with tempfile.NamedTemporaryFile(dir=name) as f:
            f.write(b"x")
            f.flush()
            size = os.path.getsize(f.name)
        with tempfile.TemporaryFile(dir=name) as f:
            f.write(b"y")
            f.seek(0)
            return size, f.read()


@topic
def children():
    with open("out", "w") as out:
        subprocess.run(["echo", "hi"], stdout=out, check=True)
    with open("out") as f:
        first = subprocess.run(["cat"], stdin=f, capture_output=True, cwd="a").stdout
    listed = subprocess.check_output("ls; cat ../out", shell=True, cwd="a")
    scrubbed = subprocess.run(["/bin/cat", HERE + "/out"], env={}, capture_output=True).stdout
    tee = subprocess.Popen(["tee", "teed"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    tee.communicate(b"data")
    return first, listed, scrubbed, os.popen("cat out").read(), os.system("cat out > out2")


@topic
def programs():
    pathlib.Path("s.py").write_text("#!/usr/bin/python3\nimport sys\nprint(sys.argv[1:])\n")
    shutil.copy("/bin/true", "true")
    os.chmod("s.py", 0o755)
    ran = subprocess.run(["./s.py", "x"], capture_output=True).stdout
    spawned = subprocess.run(["./s.py", "y"], capture_output=True, close_fds=False).stdout
    child = os.posix_spawn("./true", ["true"], os.environ)
    status = os.waitpid(child, 0)[1], os.spawnl(os.P_WAIT, "true", "true")
    os.remove("true")
    try:
        os.posix_spawn("./none", ["none"], os.environ)
    except FileNotFoundError:
        return ran, spawned, status


@topic
def spawn_actions():
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    actions = [
        (os.POSIX_SPAWN_OPEN, 1, "spawned", write, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
        (os.POSIX_SPAWN_OPEN, 0, HERE + "/out", os.O_RDONLY, 0),
    ]
    script = "cat; echo out; echo err >&2"
    child = os.posix_spawn("/bin/sh", ["sh", "-c", script], os.environ, file_actions=actions)
    os.waitpid(child, 0)
    return pathlib.Path("spawned").read_text()


@topic
def names():
    return sorted(glob.glob("**/*", recursive=True)), sorted(map(str, pathlib.Path("a").rglob("*")))


@topic
def buffers():
    with open("io", "w+b", buffering=0) as f:
        f.write(b"abc")
        f.seek(1)
        one = f.read(1)
        f.seek(0)
        room = bytearray(2)
        f.readinto(room)
    with open("io", "r+", encoding="utf-8") as f:
        f.seek(0, 2)
        f.write("é")
    with open("io", "ab") as f:
        f.write(b"x")
        return one, room, f.tell(), pathlib.Path("io").read_bytes()


@topic
def archives():
    with zipfile.ZipFile("z.zip", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr(zipfile.ZipInfo("a"), "b" * 1000)
    with tarfile.open("z.tar", "w") as t:
        t.add("io")
    with gzip.GzipFile("g.gz", "wb", mtime=0) as g:
        g.write(b"x" * 10000)
    with tarfile.open("z.tar") as t:
        listed = t.getnames()
    os.remove("z.tar")
    return zipfile.ZipFile("z.zip").read("a")[:3], listed, len(gzip.open("g.gz").read())


@topic
def mappings():
    with open("a/f", "rb") as f:
        private = mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        shared = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        found = private[2:6], shared.find(b"yy"), len(shared)
    with open("a/mapped", "w+b") as f:
        f.write(b"some text\n" * 20000)
        f.flush()
        with mmap.mmap(f.fileno(), 0) as stored:
            stored[5:9] = b"TEXT"
            stored.move(100000, 0, 1000)
            stored.flush()
            f.seek(99999)
            return found, f.read(11), stored.rfind(b"TEXT"), stored.size()


@topic
def waiting():
    with open("out") as f:
        ready = select.select([f], [f], [], 0)
        poll = select.poll()
        poll.register(f, select.POLLIN | select.POLLOUT)
        events = [event for _, event in poll.poll(0)]
        try:
            select.epoll().register(f)
        except OSError as error:
            return len(ready[0]), len(ready[1]), events, errno.errorcode[error.errno]


@topic
def numbers():
    with open("out") as f:
        link = f"/proc/self/fd/{f.fileno()}"
        told = os.path.relpath(os.readlink(link), HERE), os.stat(link).st_size
        return told, open(link).read(), open(f"/dev/fd/{f.fileno()}").read(), f.read()


@topic
def copies():
    one, other = socket.socketpair()
    reader, writer = os.pipe()
    with open("a/f", "rb") as f, open("copied", "wb") as to:
        sent = os.sendfile(one.fileno(), f.fileno(), 0, 100), len(other.recv(200))
        copied = os.copy_file_range(f.fileno(), to.fileno(), 100), f.tell()
        spliced = os.splice(f.fileno(), writer, 10), os.read(reader, 20)
        os.write(writer, b"into the file")
        back = os.splice(reader, to.fileno(), 4, offset_dst=50)
    return sent, copied, spliced, back, os.path.getsize("copied")


@topic
def sizes():
    fd = os.open("sized", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 1 << 20)
    os.posix_fallocate(fd, 0, 2 << 20)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    size = os.fstat(fd).st_size
    os.close(fd)
    return size, os.statvfs(".").f_namemax, os.pathconf(".", "PC_NAME_MAX")


@topic
def forks():
    with open("forked", "w") as f:
        f.write("p")
        f.flush()
        child = os.fork()
        if child == 0:
            f.write("c")
            f.flush()
            os._exit(0)
        os.waitpid(child, 0)
        f.write("p")
    return open("forked").read()


def write_number(i):
    pathlib.Path(f"part{i}").write_text(str(i))
    return i


@topic
def pools():
    with multiprocessing.Pool(2) as pool:
        return pool.map(write_number, range(8)), sorted(glob.glob("part*"))


@topic
def passing():
    one, other = socket.socketpair()
    with open("out") as f:
        socket.send_fds(one, [b"x"], [f.fileno()])
    return os.read(socket.recv_fds(other, 10, 1)[1][0], 10)


@topic
def imports():
    pathlib.Path("module.py").write_text("x = 5")
    sys.path.insert(0, HERE)
    import module

    shutil.rmtree("__pycache__", ignore_errors=True)
    return module.x


@topic
def failures():
    def write_only(name):
        return os.read(os.open(name, os.O_WRONLY), 1)

    attempts = [
        (open, "none"), (os.mkdir, "a"), (os.rmdir, "a"), (os.listdir, "out"), (open, "a", "w"),
        (os.rename, "none", "x"), (open, "out/x"), (os.rename, "a", "a/b/x"), (open, "n" * 256, "w"),
        (os.unlink, "a"), (write_only, "out"), (os.rename, "out", "a"), (os.rename, "a", "out"),
        (os.open, "out", os.O_DIRECTORY), (os.chdir, "out"), (os.open, "a", os.O_RDWR),
        (os.rmdir, "out"), (os.mkdir, "none/x"), (open, ""), (os.truncate, "out", -1),
    ]
    seen = []
    for function, *arguments in attempts:
        try:
            function(*arguments)
            seen.append("done")
        except OSError as error:
            seen.append(errno.errorcode[error.errno])
    return seen


if __name__ == "__main__":
    for function in TOPICS:
        print(function.__name__, function(), flush=True)
