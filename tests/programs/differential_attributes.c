/* What is known about a file: stat in all its forms, access, mode, owner, times, attributes. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "differential.h"

static void found(int answer, const struct stat *status) {
    result(answer);
    if (answer == 0) {
        say_status(status);
    }
}

static void stat_path(void) {
    struct stat status;
    const char *path;
    switch (draw(3)) {
        case 0:
            path = some_path(chance(40));
            found(stat(path, &status), &status);
            break;
        case 1:
            say(" nofollow");
            path = some_path(chance(40));
            found(lstat(path, &status), &status);
            break;
        default: {
            int flags = chance(50) ? AT_SYMLINK_NOFOLLOW : 0;
            int base = some_base();
            say(" %d", flags);
            path = some_path(chance(40));
            found(fstatat(base, path, &status, flags), &status);
        }
    }
}

static void stat_descriptor(void) {
    struct stat status;
    int fd = open_slot();
    found(chance(50) ? fstat(fd, &status) : fstatat(fd, "", &status, AT_EMPTY_PATH), &status);
}

static void stat_extended(void) {
    struct statx all;
    int base = some_base();
    int flags = chance(50) ? AT_SYMLINK_NOFOLLOW : 0;
    say(" %d", flags);
    int answer = statx(base, some_path(chance(40)), flags, STATX_BASIC_STATS, &all);
    result(answer);
    if (answer == 0) {
        struct stat status = {0};
        status.st_mode = all.stx_mode;
        status.st_nlink = all.stx_nlink;
        status.st_size = (off_t)all.stx_size;
        status.st_uid = all.stx_uid;
        status.st_gid = all.stx_gid;
        status.st_mtim.tv_sec = all.stx_mtime.tv_sec;
        status.st_mtim.tv_nsec = all.stx_mtime.tv_nsec;
        status.st_atim.tv_sec = all.stx_atime.tv_sec;
        status.st_atim.tv_nsec = all.stx_atime.tv_nsec;
        say_status(&status);
        say(" basic=%d", (all.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
    }
}

static void same_file(void) {
    struct stat one, other;
    int fd = open_slot();
    int known = stat(some_path(0), &one) == 0 && fstat(fd, &other) == 0;
    say(" same=%d", known ? one.st_ino == other.st_ino && one.st_dev == other.st_dev : -1);
}

static void access_path(void) {
    int wanted = (int)draw(8);
    int base = some_base();
    const char *path = some_path(chance(30));
    say(" %d", wanted);
    if (chance(30)) {
        say(" eaccess");
        result(faccessat(base, path, wanted, AT_EACCESS));
    } else if (base == AT_FDCWD) {
        result(access(path, wanted));
    } else {
        result(faccessat(base, path, wanted, 0));
    }
}

/* The owner's read and write bits stay: what follows from their absence depends on who runs it. */
static void change_mode(void) {
    mode_t mode = (0700 | draw(07777 + 1)) & (feature("set_id") ? 07777 : 01777);
    say(" %o", mode);
    if (chance(40)) {
        result(fchmod(open_slot(), mode));
    } else if (chance(50)) {
        result(chmod(some_path(chance(30)), mode));
    } else {
        int base = some_base();
        result(fchmodat(base, some_path(chance(30)), mode, 0));
    }
}

static void change_owner(void) {
    uid_t user = chance(50) ? geteuid() : (uid_t)-1;
    gid_t group = chance(50) ? getegid() : (gid_t)-1;
    say(" %d %d", user != (uid_t)-1, group != (gid_t)-1);
    switch (draw(4)) {
        case 0:
            result(fchown(open_slot(), user, group));
            break;
        case 1:
            result(lchown(some_path(chance(30)), user, group));
            break;
        case 2:
            result(chown(some_path(chance(30)), user, group));
            break;
        default: {
            int base = some_base();
            result(fchownat(base, some_path(0), user, group, AT_SYMLINK_NOFOLLOW));
        }
    }
}

static struct timespec some_time(void) {
    struct timespec time = {1000000000 + draw(100000), draw(1000000000)};
    uint32_t special = draw(10);
    if (special < (feature("errno_order") ? 3 : 2)) {
        time.tv_nsec = special == 0 ? UTIME_NOW : special == 1 ? UTIME_OMIT : 1000000000;
    }
    say(" %lld.%ld", (long long)time.tv_sec, time.tv_nsec);
    return time;
}

static void change_times(void) {
    struct timespec both[2];
    both[0] = some_time();
    both[1] = some_time();
    if (chance(40)) {
        result(futimens(open_slot(), both));
    } else if (chance(20)) {
        result(utimes(some_path(chance(20)), NULL));
    } else {
        int base = some_base();
        int flags = chance(40) ? AT_SYMLINK_NOFOLLOW : 0;
        say(" %d", flags);
        result(utimensat(base, some_path(chance(20)), both, flags));
    }
}

static void set_mask(void) {
    static const mode_t masks[] = {022, 022, 0, 077, 027};
    mode_t mask = ONE_OF(masks);
    say(" %o", mask);
    say(" = %o", umask(mask));
}

static const char *attribute_name(void) {
    static const char *const names[] = {"user.a", "user.b", "user.a", "user.", "none.a", ""};
    const char *name = names[chance(85) ? draw(2) : draw(6)];
    say(" '%s'", name);
    return name;
}

static void set_attribute(void) {
    static const int choices[] = {0, 0, 0, XATTR_CREATE, XATTR_REPLACE};
    char value[3000];
    const char *name = attribute_name();
    size_t length = chance(90) ? draw(40) : draw(sizeof value);
    int flags = ONE_OF(choices);
    fill(value, length);
    say(" %zu %d", length, flags);
    if (chance(50)) {
        result(fsetxattr(open_slot(), name, value, length, flags));
    } else if (chance(70)) {
        result(setxattr(some_path(chance(20)), name, value, length, flags));
    } else {
        result(lsetxattr(some_path(chance(20)), name, value, length, flags));
    }
}

static void get_attribute(void) {
    char value[4000];
    const char *name = attribute_name();
    size_t room = chance(20) ? 0 : chance(20) ? draw(20) : sizeof value;
    say(" %zu", room);
    ssize_t length = chance(50) ? fgetxattr(open_slot(), name, value, room)
                                : getxattr(some_path(chance(20)), name, value, room);
    result(length);
    if (length > 0 && room > 0) {
        say_bytes(value, (size_t)length);
    }
}

static int by_name(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void list_attributes(void) {
    char names[4000];
    char *sorted[100];
    int count = 0;
    ssize_t length = chance(50) ? flistxattr(open_slot(), names, sizeof names)
                                : listxattr(some_path(chance(20)), names, sizeof names);
    result(length < 0 ? -1 : 0);
    for (char *at = names; length > 0 && at < names + length && count < 100; at += strlen(at) + 1) {
        if (strncmp(at, "user.", 5) == 0) {
            sorted[count++] = at;
        }
    }
    qsort(sorted, (size_t)count, sizeof *sorted, by_name);
    for (int i = 0; i < count; i++) {
        say(" %s", sorted[i]);
    }
}

static void remove_attribute(void) {
    const char *name = attribute_name();
    result(chance(50) ? fremovexattr(open_slot(), name)
                      : removexattr(some_path(chance(20)), name));
}

const struct operation attribute_operations[] = {
    {"stat", NULL, 6, stat_path},
    {"fstat", NULL, 4, stat_descriptor},
    {"statx", NULL, 2, stat_extended},
    {"same", NULL, 2, same_file},
    {"access", NULL, 3, access_path},
    {"chmod", "changes", 3, change_mode},
    {"chown", "changes", 2, change_owner},
    {"utimens", "changes", 3, change_times},
    {"umask", NULL, 1, set_mask},
    {"setxattr", "xattrs", 3, set_attribute},
    {"getxattr", "xattrs", 3, get_attribute},
    {"listxattr", "xattrs", 1, list_attributes},
    {"removexattr", "xattrs", 1, remove_attribute},
    {NULL, NULL, 0, NULL},
};
