"""Every call of the package, in a process of its own; prints one line if all is well."""

import errno
import io
import os
import threading

import numpy

import terral


def fails(kind, number, what):
    try:
        what()
    except kind as error:
        assert number is None or error.errno == number, error
        assert str(error), "it says nothing"
        return str(error)
    raise AssertionError("it does not fail")


def objects(connection):
    box = terral.Container.make("box", connection=connection)
    with box.create() as one:
        address = one.address
        one.write(b"0123456789")
        one.write(numpy.arange(4, dtype="u1"), at=16)
        assert one.read(100) == b"0123456789" + bytes(6) + bytes([0, 1, 2, 3])
        one.write_vector([(0, 2), (8, 1)], b"abc")
        into = numpy.zeros(4, dtype="u1")
        assert one.readinto_vector([(8, 1), (0, 3)], into) == 4
        assert into.tobytes() == b"cab2"
        reads = [one.submit_read([(at, 4)], numpy.zeros(4, dtype="u1")) for at in range(4)]
        assert [read.wait() for read in reads] == [4] * 4 and reads[0].wait() == 4
        big = numpy.arange(1 << 20, dtype="u1")
        written = [one.submit_write([(at << 20, 1 << 20)], big) for at in range(4)]
        assert all(write.wait(60) == 1 << 20 and write.done() for write in written)
        assert one.read(1 << 20, at=3 << 20) == big.tobytes()
        fails(OSError, errno.EINVAL, lambda: one.submit_write([(0, 1)], b"ab"))
        one.write(b"ab234567c\0")
        one.truncate(10)
        seen = one.update_id()
        later = one.write_if(seen, [(1, 1), (9, 1)], b"YZ")
        assert later == one.update_id() > seen and one.read(10) == b"aY234567cZ"
        fails(BlockingIOError, errno.EAGAIN, lambda: one.write_if(seen, [(0, 1)], b"!"))
        one.punch(0, 2)
        one.truncate(9)
        assert one.read(100) == b"\0\x00234567c"
        for key, value in [("i", -5), ("r", 2.5), ("t", "über"), ("b", b"\0\xff"), ("none", b"")]:
            one.set_attribute(key, value)
            assert one.attribute(key) == value, key
        assert sorted(one.attributes()) == ["b", "i", "none", "r", "t"]
        one.set_attribute("i", None)
        fails(OSError, errno.ENODATA, lambda: one.attribute("i"))
        fails(OSError, None, lambda: box.seal(address))
        one.sync()
    fails(ValueError, None, lambda: one.read(1))
    box.seal(address)
    fails(PermissionError, errno.EACCES, lambda: box.open(address, writes=True))
    status = box.stat(address)
    assert (status.size_bytes, status.sealed) == (9, True), status
    named = terral.derived_id("job", 3, 7)
    assert named == terral.derived_id("job", 3, 7) != terral.random_id()
    box.create(named).close()
    fails(FileExistsError, errno.EEXIST, lambda: box.create(named))
    again = terral.Container.named("box", connection)
    assert set(again) == {address, terral.Address(named, address.server)}
    again.discard(terral.Address(named, address.server))
    assert list(again) == [address]
    again.close()
    box.link(address, "name")
    box.bind("shown")
    with terral.Container.at("shown", connection) as shown:
        assert shown.open(address).read(9) == b"\0\x00234567c"
        shown.flush()
    box.close()
    gone = terral.Container.make("gone", connection=connection)
    with gone.create() as moved:
        moved.write(b"x")
    gone.move(moved_address(gone), "moved")
    gone.remove()
    gone.close()
    fails(FileNotFoundError, errno.ENOENT, lambda: terral.Container.named("gone", connection))
    fails(ValueError, None, lambda: terral.Container.named("a\0b", connection))


def moved_address(container):
    (only,) = container
    return only


def checkpoints():
    points = terral.Checkpoints("points", keep=2)
    assert points.restart() is None
    cells = numpy.arange(100_000, dtype="f8").reshape(100, 1000)
    points.save(1, cells)
    with points.restart() as last:
        assert (last.step, last.size_bytes) == (1, cells.nbytes)
        into = numpy.empty_like(cells)
        assert last.readinto_at(into, 0) == cells.nbytes and (into == cells).all()
        last.seek(-8, io.SEEK_END)
        assert numpy.frombuffer(last.read(), dtype="f8")[0] == 99_999 and last.read() == b""
    fails(ValueError, None, lambda: last.read(1))

    # What is not in one piece is said, and leaves what was the latest.
    fails(ValueError, None, lambda: points.save(2, cells[:, ::2]))
    assert points.restart().step == 1
    with points.writer(2) as file:
        numpy.save(file, cells)
        file.write(b"end")
    with points.restart() as last:
        assert (numpy.load(last) == cells).all() and last.read() == b"end" and last.step == 2
    try:
        with points.writer(3) as file:
            file.write(bytes(100_000))
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert points.restart().step == 2 and points.restart(step=3) is None

    first = points.begin(4)
    joined = points.join(4, first.attempt)
    two = joined.dump(1, 5, b"world")
    joined.leave()
    fails(OSError, errno.EINVAL, lambda: points.begin(4).end([two]))
    first = points.begin(4)
    parts = [first.dump(1, 5, b"world"), first.dump(0, 0, memoryview(b"hello"))]
    fails(FileExistsError, errno.EEXIST, lambda: first.dump(0, 0, b"again"))
    first.end(parts)
    assert points.restart().read() == b"helloworld"
    points.begin(5).abandon()
    assert points.restart(step=1) is None, "two stay"
    points.close()


def threads():
    """Others compute meanwhile, and errors are those of their own thread."""
    points, said = terral.Checkpoints("threads", keep=1), []

    def missing(name):
        for _ in range(50):
            message = fails(OSError, errno.ENOENT, lambda: terral.Container.named(name))
            said.append(name in message)

    all_ = [threading.Thread(target=missing, args=(name,)) for name in ("first", "second")]
    for one in all_:
        one.start()
    for step in range(20):
        points.save(step, bytes(100_000))
    for one in all_:
        one.join()
    assert len(said) == 100 and all(said)


with terral.connect() as connection:
    objects(connection)
checkpoints()
threads()
os.environ["TERRAL_INSTANCE"] = "/nowhere"
fails(OSError, errno.ENOTCONN, terral.connect)
print("python: all well")
