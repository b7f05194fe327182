/* Reading, writing, sizes, holes, mappings and copies, on a descriptor. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/falloc.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "differential.h"

static char buffer[400000];

/* POSIX: to read nothing does nothing; on tmpfs it counts as an access. */
static size_t length_to_read(void) {
    size_t length = some_length();
    return length > 0 || !feature("atime") || feature("empty_reads") ? length : 1;
}

static void read_some(void) {
    int fd = open_slot();
    size_t length = length_to_read();
    ssize_t count = read(fd, buffer, length);
    say(" %zu", length);
    result(count);
    if (count > 0) {
        say_bytes(buffer, (size_t)count);
    }
}

/* Without "empty_writes" no write of nothing, which is to change nothing. */
static size_t length_to_write(void) {
    size_t length = some_length();
    return length > 0 || feature("empty_writes") ? length : 1;
}

static void write_some(void) {
    int fd = open_slot();
    size_t length = length_to_write();
    fill(buffer, length);
    struct timespec before;
    clock_gettime(CLOCK_REALTIME_COARSE, &before);
    ssize_t count = write(fd, buffer, length);
    say(" %zu", length);
    result(count);
    struct stat status;
    if (count > 0 && fstat(fd, &status) == 0) {
        struct timespec changed = status.st_mtim;
        int later = changed.tv_sec > before.tv_sec ||
                    (changed.tv_sec == before.tv_sec && changed.tv_nsec >= before.tv_nsec);
        say(" later=%d size=%lld", later, (long long)status.st_size);
    }
}

static void pread_some(void) {
    int fd = open_slot();
    size_t length = length_to_read();
    off_t at = chance(3) ? -1 : some_offset();
    ssize_t count = pread(fd, buffer, length, at);
    say(" %zu@%lld", length, (long long)at);
    result(count);
    if (count > 0) {
        say_bytes(buffer, (size_t)count);
    }
}

static void pwrite_some(void) {
    int fd = open_slot();
    size_t length = length_to_write();
    fill(buffer, length);
    off_t at = chance(3) ? -1 : some_offset();
    say(" %zu@%lld", length, (long long)at);
    result(pwrite(fd, buffer, length, at));
}

static int vector(struct iovec *parts, size_t *total) {
    int count = (int)draw(5);
    *total = 0;
    count += count == 0 && !feature("empty_vectors");
    for (int i = 0; i < count; i++) {
        size_t length = i > 0 && chance(15) ? 0 : chance(90) ? 1 + draw(300) : 1 + draw(20000);
        parts[i] = (struct iovec){buffer + *total, length};
        *total += length;
        say(" %zu", length);
    }
    return count;
}

static void readv_some(void) {
    int fd = open_slot();
    struct iovec parts[5];
    size_t total;
    int count = vector(parts, &total);
    ssize_t got;
    if (chance(50)) {
        off_t at = some_offset();
        say("@%lld", (long long)at);
        got = preadv(fd, parts, count, at);
    } else {
        got = readv(fd, parts, count);
    }
    result(got);
    if (got > 0) {
        say_bytes(buffer, (size_t)got);
    }
}

static void writev_some(void) {
    int fd = open_slot();
    struct iovec parts[5];
    size_t total;
    int count = vector(parts, &total);
    fill(buffer, total);
    if (chance(50)) {
        off_t at = some_offset();
        say("@%lld", (long long)at);
        result(pwritev(fd, parts, count, at));
    } else {
        result(writev(fd, parts, count));
    }
}

static void seek(void) {
    static const char *const names[] = {"SET", "CUR", "END"};
    int fd = open_slot();
    uint32_t whence = draw(3);
    off_t at = some_offset();
    if (whence > 0 && chance(50)) {
        at = -(off_t)draw(300);
    }
    say(" %lld %s", (long long)at, names[whence]);
    struct stat status;
    if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
        return; /* Every file system has its own offsets there. */
    }
    result(lseek(fd, at, (int)whence));
}

static int only_zeros(int fd, off_t from, off_t to) {
    static char bytes[65536];
    while (from < to) {
        size_t want = to - from < (off_t)sizeof bytes ? (size_t)(to - from) : sizeof bytes;
        ssize_t count = pread(fd, bytes, want, from);
        if (count <= 0) {
            return 0;
        }
        for (ssize_t i = 0; i < count; i++) {
            if (bytes[i] != 0) {
                return 0;
            }
        }
        from += count;
    }
    return 1;
}

/* Whether an answer of lseek(2) may be: what is passed over as a hole reads as zeros. */
static int is_sound(int fd, off_t at, int whence, off_t found, off_t size) {
    off_t data = whence == SEEK_DATA ? found : lseek(fd, found, SEEK_DATA);
    off_t hole = whence == SEEK_DATA ? at : found;
    int inside = found == -1 ? whence == SEEK_DATA : found >= at && found <= size;
    return inside && only_zeros(fd, hole, data == -1 ? size : data);
}

/* What counts as data, beyond what was written, is the file system's. */
static void seek_data(void) {
    int fd = open_slot();
    off_t at = some_offset();
    int whence = chance(50) ? SEEK_DATA : SEEK_HOLE;
    say(" %lld %s", (long long)at, whence == SEEK_DATA ? "DATA" : "HOLE");
    struct stat status;
    int known = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > at;
    off_t here = lseek(fd, 0, SEEK_CUR), found = lseek(fd, at, whence);
    if (feature("exact_holes") || !known || here == -1) {
        result(found);
        return;
    }
    char byte;
    int moved = found == -1 || lseek(fd, 0, SEEK_CUR) == found;
    int reads = pread(fd, &byte, 1, at) == 1;
    int sound = !reads || is_sound(fd, at, whence, found, status.st_size);
    say(" moved=%d sound=%d back=%lld", moved, sound, (long long)lseek(fd, here, SEEK_SET));
}

static off_t some_size(void) {
    return chance(3) ? -1 : chance(40) ? draw(300) : some_offset();
}

static void ftruncate_some(void) {
    int fd = open_slot();
    off_t size = some_size();
    say(" %lld", (long long)size);
    result(ftruncate(fd, size));
}

static void truncate_some(void) {
    const char *path = some_plain_path(0);
    off_t size = some_size();
    struct stat status;
    say(" %lld", (long long)size);
    if (!feature("truncate_directory") && stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
        return;
    }
    result(truncate(path, size));
}

static void posix_fallocate_some(void) {
    int fd = open_slot();
    off_t at = some_offset(), length = chance(4) ? 0 : (off_t)draw(9000);
    struct stat status;
    int grows = !feature("fallocate_times") && length > 0;
    if (grows && fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        length += status.st_size; /* It grows, so its time is another in any case. */
    }
    say(" %lld+%lld", (long long)at, (long long)length);
    int code = posix_fallocate(fd, at, length);
    errno = code;
    result(code == 0 ? 0 : -1);
}

static void fallocate_some(void) {
    static const int modes[] = {0, 0, FALLOC_FL_PUNCH_HOLE,
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                FALLOC_FL_PUNCH_HOLE};
    int fd = open_slot();
    int mode = feature("keep_size") && chance(15) ? FALLOC_FL_KEEP_SIZE : ONE_OF(modes);
    off_t at = some_offset(), length = chance(4) ? 0 : chance(4) ? -1 : (off_t)draw(20000);
    say(" %d %lld+%lld", mode, (long long)at, (long long)length);
    result(fallocate(fd, mode, at, length));
}

static void sync_some(void) {
    int fd = open_slot();
    switch (draw(3)) {
        case 0:
            result(fsync(fd));
            break;
        case 1:
            result(fdatasync(fd));
            break;
        default:
            errno = posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
            result(errno == 0 ? 0 : -1);
    }
}

static void poll_some(void) {
    struct pollfd one = {open_slot(), POLLIN | POLLOUT, 0};
    if (fcntl(one.fd, F_GETFL) & O_PATH && !feature("poll_path")) {
        return;
    }
    int ready = poll(&one, 1, 0);
    result(ready);
    say(" %x tty=%d", one.revents, isatty(one.fd));
}

static int has_hole(int fd) {
    struct stat status;
    off_t here = lseek(fd, 0, SEEK_CUR), hole = lseek(fd, 0, SEEK_HOLE);
    lseek(fd, here, SEEK_SET);
    return fstat(fd, &status) == 0 && hole >= 0 && hole < status.st_size;
}

/* Read right away: what a private mapping shows after later writes is open, and what stores do to
 * the time of modification differs among file systems. */
static void map_some(void) {
    int fd = open_slot();
    int shared = feature("shared_maps") && chance(40);
    int writes = chance(50);
    off_t at = chance(70) ? 0 : chance(80) ? 4096 : 100;
    size_t length = chance(5) ? 0 : 1 + draw(12000);
    if (!feature("errno_order")) {
        at &= ~(off_t)4095;
        length += length == 0;
    }
    struct stat status;
    if (!feature("map_directory") && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
        return;
    }
    if (feature("exact_holes") && has_hole(fd)) {
        return; /* On tmpfs reading a mapped hole fills it. */
    }
    int protection = PROT_READ | (writes ? PROT_WRITE : 0);
    char *map = mmap(NULL, length, protection, shared ? MAP_SHARED : MAP_PRIVATE, fd, at);
    say(" %s%s %zu@%lld", shared ? "shared" : "private", writes ? "+w" : "", length, (long long)at);
    if (map == MAP_FAILED) {
        result(-1);
        return;
    }
    size_t there = 0;
    if (fstat(fd, &status) == 0 && status.st_size > at) {
        there = (size_t)(status.st_size - at) < length ? (size_t)(status.st_size - at) : length;
    }
    say(" = ok");
    say_bytes(map, there);
    if (writes && there > 0) {
        map[there / 2] = 'M';
        ssize_t back = pread(fd, buffer, 1, at + (off_t)there / 2);
        say(" private=%d", back != 1 || buffer[0] != 'M');
    }
    munmap(map, length);
    if (shared && writes) {
        futimens(fd, NULL);
    }
}

static int is_same(int one, int other) {
    struct stat first, second;
    return fstat(one, &first) == 0 && fstat(other, &second) == 0 && first.st_ino == second.st_ino;
}

/* A file sent to itself may meet what it has just sent. */
static void sendfile_some(void) {
    int to = open_slot(), from = open_slot();
    if (is_same(to, from)) {
        return;
    }
    size_t length = some_length();
    off_t at = some_offset();
    int positioned = chance(50);
    say(" %zu", length);
    result(sendfile(to, from, positioned ? &at : NULL, length));
    if (positioned) {
        say(" at=%lld", (long long)at);
    }
}

/* Between two descriptors of one file only where the ranges cannot overlap, which is EINVAL. */
static void copy_range_some(void) {
    int to = open_slot(), from = open_slot();
    size_t length = some_length();
    off_t from_at = some_offset(), to_at = some_offset();
    int positioned = chance(60);
    say(" %zu %lld>%lld", length, (long long)from_at, (long long)to_at);
    result(positioned ? copy_file_range(from, &from_at, to, &to_at, length, 0)
                      : copy_file_range(from, NULL, to, NULL, length, 0));
    if (positioned) {
        say(" at=%lld>%lld", (long long)from_at, (long long)to_at);
    }
}

const struct operation data_operations[] = {
    {"read", NULL, 6, read_some},
    {"write", NULL, 8, write_some},
    {"pread", NULL, 5, pread_some},
    {"pwrite", NULL, 6, pwrite_some},
    {"readv", NULL, 3, readv_some},
    {"writev", NULL, 3, writev_some},
    {"lseek", NULL, 5, seek},
    {"lseek-holes", "holes", 2, seek_data},
    {"ftruncate", NULL, 3, ftruncate_some},
    {"truncate", NULL, 2, truncate_some},
    {"posix_fallocate", "posix_fallocate", 1, posix_fallocate_some},
    {"fallocate", "fallocate", 2, fallocate_some},
    {"sync", NULL, 1, sync_some},
    {"poll", "poll", 1, poll_some},
    {"mmap", NULL, 3, map_some},
    {"sendfile", "sendfile", 2, sendfile_some},
    {"copy_file_range", "copy_file_range", 2, copy_range_some},
    {NULL, NULL, 0, NULL},
};
