/* Opening, closing, duplicating and locking descriptors. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "differential.h"

static const struct {
    int flag;
    int percent;
    const char *name;
    const char *feature;
} open_flags[] = {
    {O_CREAT, 55, "CREAT", NULL},        {O_EXCL, 15, "EXCL", NULL},
    {O_TRUNC, 15, "TRUNC", NULL},        {O_APPEND, 20, "APPEND", NULL},
    {O_DIRECTORY, 4, "DIRECTORY", NULL}, {O_NOFOLLOW, 8, "NOFOLLOW", NULL},
    {O_CLOEXEC, 25, "CLOEXEC", NULL},    {O_NONBLOCK, 3, "NONBLOCK", NULL},
    {O_PATH, 3, "PATH", "o_path"},       {O_SYNC, 2, "SYNC", NULL},
};

static void put(int *slot, int fd) {
    if (*slot >= 0 && *slot != fd) {
        close(*slot);
    }
    *slot = fd;
}

static int some_mode(void) {
    static const int modes[] = {0644, 0600, 0666, 0755, 0640, 04755, 01777, 02644};
    int mode = ONE_OF(modes) & (feature("set_id") ? 07777 : 01777);
    say(" %o", mode);
    return mode;
}

static const char *to_open(int flags) {
    int directory = flags & O_DIRECTORY ? 1 : 0;
    return flags & O_CREAT ? some_plain_path(directory) : some_path(directory);
}

static void open_one(void) {
    static const char *const names[] = {"RDONLY", "WRONLY", "RDWR"};
    int *slot = some_slot();
    uint32_t access = chance(60) ? 2 : draw(2);
    int flags = (int)access;
    say(" %s", names[access]);
    for (size_t i = 0; i < sizeof open_flags / sizeof *open_flags; i++) {
        int wanted = chance(open_flags[i].percent);
        if (wanted && (open_flags[i].feature == NULL || feature(open_flags[i].feature))) {
            flags |= open_flags[i].flag;
            say("|%s", open_flags[i].name);
        }
    }
    if (flags & O_PATH && !feature("path_of_link")) {
        flags &= ~O_NOFOLLOW;
    }
    int mode = some_mode();
    if ((flags & O_ACCMODE) == O_RDONLY && !feature("create_to_read")) {
        flags &= ~O_CREAT;
    }
    int base = chance(30) ? some_base() : AT_FDCWD;
    const char *path = to_open(flags);
    flags &= truncates_empty(base, path) ? ~O_TRUNC : ~0;
    if (waits(base, path) && !(flags & O_PATH)) {
        flags = (flags & ~O_ACCMODE) | O_WRONLY | O_NONBLOCK;
    }
    if (base != AT_FDCWD) {
        put(slot, openat(base, path, flags, mode));
    } else if ((flags & ~O_CLOEXEC) == (O_WRONLY | O_CREAT | O_TRUNC)) {
        put(slot, creat(path, (mode_t)mode));
    } else {
        put(slot, open(path, flags, mode));
    }
    result(*slot < 0 ? -1 : 0);
}

static void open_temporary(void) {
    int *slot = some_slot();
    char template[64];
    snprintf(template, sizeof template, "t%u-XXXXXX", draw(3));
    int fd = chance(50) ? mkstemp(template) : mkostemp(template, O_APPEND | O_CLOEXEC);
    put(slot, fd);
    if (fd < 0) {
        result(-1);
        return;
    }
    struct stat status;
    say(" stat=%d", fstat(fd, &status));
    say_status(&status);
    say(" gone=%d", unlink(template));
}

static void open_nameless(void) {
    int *slot = some_slot();
    int flags = O_TMPFILE | (chance(80) ? O_RDWR : chance(50) ? O_WRONLY : O_RDONLY);
    flags |= chance(20) ? O_EXCL : 0;
    say(" %o", flags);
    put(slot, open(some_path(1), flags, some_mode()));
    result(*slot < 0 ? -1 : 0);
}

static void name_nameless(void) {
    int fd = open_slot();
    char from[64];
    snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
    result(linkat(AT_FDCWD, from, AT_FDCWD, some_path(0), AT_SYMLINK_FOLLOW));
}

static void close_one(void) {
    int *slot = some_slot();
    int closed = close(*slot);
    *slot = -1;
    result(closed);
}

static void open_directory(void) {
    uint32_t which = draw(DIRECTORIES);
    say(" D%u", which);
    const char *path = some_home();
    int fd = open(path, O_RDONLY | O_DIRECTORY | (chance(50) ? O_CLOEXEC : 0));
    result(fd < 0 ? -1 : 0);
    if (fd >= 0) {
        put(&world.directory[which], fd);
    }
}

static void duplicate(void) {
    int from = open_slot();
    int *to = some_slot();
    int fd = -1;
    switch (draw(5)) {
        case 0:
            say(" dup");
            fd = dup(from);
            break;
        case 1:
            say(" dup2");
            fd = dup2(from, *to >= 0 ? *to : 300 + (int)(to - world.slot));
            break;
        case 2:
            say(" dup3");
            fd = dup3(from, *to >= 0 ? *to : 300 + (int)(to - world.slot), O_CLOEXEC);
            break;
        case 3:
            say(" dupfd");
            fd = fcntl(from, F_DUPFD, 100);
            break;
        default:
            say(" dupfd_cloexec");
            fd = fcntl(from, F_DUPFD_CLOEXEC, 100);
    }
    result(fd < 0 ? -1 : 0);
    if (fd >= 0) {
        put(to, fd);
        say(" cloexec=%d", fcntl(fd, F_GETFD));
    }
}

/* O_LARGEFILE says how the program was compiled. */
static void flags(void) {
    int fd = open_slot();
    switch (draw(4)) {
        case 0:
            say(" SETFL");
            result(fcntl(fd, F_SETFL, (chance(50) ? O_APPEND : 0) | (chance(20) ? O_NONBLOCK : 0)));
            break;
        case 1:
            say(" SETFD");
            result(fcntl(fd, F_SETFD, chance(50) ? FD_CLOEXEC : 0));
            break;
        case 2:
            say(" GETFD");
            result(fcntl(fd, F_GETFD));
            break;
        default:
            say(" GETFL");
            int found = fcntl(fd, F_GETFL);
            int told = feature("all_flags") ? ~0100000 : O_ACCMODE | O_APPEND;
            result(found < 0 ? -1 : found & told);
    }
}

static void say_holder(const struct flock *lock) {
    int holder = -1;
    for (int i = 0; i < world.processes; i++) {
        holder = world.pids[i] == lock->l_pid ? i : holder;
    }
    say(" {%d %lld+%lld by %d}", lock->l_type, (long long)lock->l_start, (long long)lock->l_len,
        holder);
}

static void lock_range(void) {
    static const short types[] = {F_RDLCK, F_WRLCK, F_WRLCK, F_UNLCK};
    int fd = open_slot();
    int of_file = feature("ofd_locks") && chance(30);
    struct flock lock = {0};
    lock.l_type = ONE_OF(types);
    lock.l_whence = chance(80) ? SEEK_SET : chance(50) ? SEEK_CUR : SEEK_END;
    lock.l_start = draw(60) - (lock.l_whence == SEEK_SET ? 0 : 20);
    lock.l_len = chance(20) ? 0 : chance(5) ? -5 : (off_t)draw(40);
    int asks = chance(30) && lock.l_type != F_UNLCK;
    say(" %s%s %d %d:%lld+%lld", of_file ? "ofd " : "", asks ? "get" : "set", lock.l_type,
        lock.l_whence, (long long)lock.l_start, (long long)lock.l_len);
    int command = of_file ? (asks ? F_OFD_GETLK : F_OFD_SETLK) : (asks ? F_GETLK : F_SETLK);
    int answer = fcntl(fd, command, &lock);
    /* POSIX leaves the choice; Linux says EAGAIN. */
    result(answer);
    if (answer == 0 && asks && lock.l_type == F_UNLCK) {
        say(" free");
    } else if (answer == 0 && asks) {
        say_holder(&lock);
    }
}

static void lock_whole(void) {
    static const int kinds[] = {LOCK_SH, LOCK_EX, LOCK_UN};
    int fd = open_slot();
    int kind = ONE_OF(kinds);
    say(" %d", kind);
    result(flock(fd, kind | LOCK_NB));
}

static void lock_section(void) {
    static const int kinds[] = {F_TLOCK, F_TEST, F_ULOCK};
    int fd = open_slot();
    int kind = ONE_OF(kinds);
    off_t length = (off_t)draw(50);
    say(" %d %lld", kind, (long long)length);
    result(lockf(fd, kind, length));
}

const struct operation descriptor_operations[] = {
    {"open", NULL, 22, open_one},
    {"mkstemp", NULL, 1, open_temporary},
    {"tmpfile", "tmpfile", 1, open_nameless},
    {"tmpfile-link", "tmpfile_link", 1, name_nameless},
    {"close", NULL, 5, close_one},
    {"open-directory", NULL, 2, open_directory},
    {"dup", NULL, 4, duplicate},
    {"fcntl", NULL, 4, flags},
    {"lock-range", "locks", 5, lock_range},
    {"flock", "flock", 4, lock_whole},
    {"lockf", "locks", 2, lock_section},
    {NULL, NULL, 0, NULL},
};
