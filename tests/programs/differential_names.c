/* Names: made, removed, renamed, linked. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "differential.h"

static mode_t some_mode(void) {
    static const mode_t modes[] = {0755, 0700, 0777, 0750, 01777, 02755};
    mode_t mode = ONE_OF(modes) & (feature("set_id") ? 07777 : 01777);
    say(" %o", mode);
    return mode;
}

static void make_directory(void) {
    mode_t mode = some_mode();
    int base = chance(30) ? some_base() : AT_FDCWD;
    const char *path = some_path(1);
    if (strstr(path, "./") != NULL && !feature("mkdir_dot")) {
        return;
    }
    result(base != AT_FDCWD ? mkdirat(base, path, mode) : mkdir(path, mode));
}

static void remove_directory(void) {
    int base = chance(30) ? some_base() : AT_FDCWD;
    const char *path = some_path(1);
    if (may_go(path)) {
        result(base == AT_FDCWD ? rmdir(path) : unlinkat(base, path, AT_REMOVEDIR));
    }
}

static void unlink_one(void) {
    int base = chance(30) ? some_base() : AT_FDCWD;
    const char *path = some_path(0);
    result(base == AT_FDCWD ? unlink(path) : unlinkat(base, path, 0));
}

static void remove_any(void) {
    const char *path = some_path(chance(50));
    if (may_go(path)) {
        result(remove(path));
    }
}

/* Whether a rename would take a directory from, or put one over, a name that stays. */
static int moves_what_stays(int base, const char *from, const char *to, int both) {
    struct stat status;
    if (feature("moved")) {
        return 0;
    }
    int directory = fstatat(base, from, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                    S_ISDIR(status.st_mode);
    int other = both && fstatat(base, to, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
                S_ISDIR(status.st_mode);
    return (directory || other) && !(may_go(from) && may_go(to));
}

/* Whether `to` is a directory on the way to `from`: that cannot be, for more than one reason. */
static int leads_to(int base, const char *to, const char *from) {
    struct stat target, on_way, top;
    char path[9000];
    if (feature("errno_order") || fstatat(base, to, &target, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISDIR(target.st_mode) || stat(world.root, &top) != 0) {
        return 0;
    }
    const char *slash = strrchr(from, '/');
    snprintf(path, sizeof path, "%.*s.", slash == NULL ? 0 : (int)(slash + 1 - from), from);
    while (fstatat(base, path, &on_way, 0) == 0 && strlen(path) + 4 < sizeof path) {
        if (on_way.st_ino == target.st_ino) {
            say(" on the way");
            return 1;
        }
        if (on_way.st_ino == top.st_ino) {
            return 0;
        }
        strcat(path, "/..");
    }
    return 0;
}

static int is_same(int base, const char *from, const char *to) {
    struct stat one, other;
    return fstatat(base, from, &one, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(base, to, &other, AT_SYMLINK_NOFOLLOW) == 0 && one.st_ino == other.st_ino;
}

static void rename_one(void) {
    static const unsigned choices[] = {0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE,
                                       RENAME_EXCHANGE | RENAME_NOREPLACE, 64};
    char from[8192];
    int base = some_base();
    int directory = chance(35);
    strcpy(from, some_plain_path(directory));
    say(" >");
    const char *to = some_plain_path(directory);
    unsigned flags = chance(25) && feature("renameat2") ? ONE_OF(choices) : 0;
    if (flags > RENAME_EXCHANGE && !feature("errno_order")) {
        flags = 0;
    }
    if (flags & RENAME_EXCHANGE && !feature("exchange")) {
        flags = RENAME_NOREPLACE;
    }
    say(" %u", flags);
    if (flags & RENAME_NOREPLACE && !feature("noreplace_same") && is_same(base, from, to)) {
        return;
    }
    if (leads_to(base, to, from) || (flags != 0 && leads_to(base, from, to)) ||
        moves_what_stays(base, from, to, flags & RENAME_EXCHANGE)) {
        return;
    }
    if (flags != 0) {
        result(renameat2(base, from, base, to, flags));
    } else if (base != AT_FDCWD) {
        result(renameat(base, from, base, to));
    } else {
        result(rename(from, to));
    }
}

static void link_one(void) {
    char from[8192];
    int base = some_base();
    strcpy(from, some_plain_path(chance(10)));
    say(" >");
    const char *to = some_plain_path(0);
    int follow = chance(20) ? AT_SYMLINK_FOLLOW : 0;
    say(" %d", follow);
    struct stat status;
    int is = fstatat(base, from, &status, follow ? 0 : AT_SYMLINK_NOFOLLOW);
    int special = is == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
    if (special && !feature("special_links")) {
        say(" special");
        return;
    }
    result(base == AT_FDCWD && follow == 0 ? link(from, to)
                                           : linkat(base, from, base, to, follow));
}

static void link_symbolic(void) {
    char target[8192];
    int base = some_base();
    strcpy(target, some_path(chance(50)));
    /* A slash after a name that is too long would be a second thing to object to. */
    for (size_t end = strlen(target); end > 200 && target[end - 1] == '/'; end--) {
        target[end - 1] = 0;
    }
    say(" >");
    char path[8192];
    strcpy(path, some_path(0));
    size_t length = strlen(path);
    if (length > 1 && chance(70)) {
        path[length - 2] = 's';
        say("(s)");
    }
    result(base == AT_FDCWD ? symlink(target, path) : symlinkat(target, base, path));
}

static void read_link(void) {
    char target[8192];
    size_t room = chance(20) ? !feature("errno_order") + draw(4) : sizeof target - 1;
    say(" %zu", room);
    int base = some_base();
    ssize_t length = readlinkat(base, some_plain_path(chance(20)), target, room);
    result(length < 0 ? -1 : 0);
    if (length >= 0 && room < 10) {
        say(" %zd", target[0] == '/' ? 0 : length); /* The root's name differs. */
    } else if (length >= 0) {
        target[length] = 0;
        say_path(target);
    }
}

static void make_node(void) {
    mode_t mode = some_mode();
    switch (feature("special_nodes") ? draw(3) : 0) {
        case 0:
            say(" regular");
            result(mknod(some_path(0), S_IFREG | mode, 0));
            break;
        case 1:
            say(" pipe");
            result(mkfifo(some_path(0), mode));
            break;
        default:
            say(" socket");
            result(mknod(some_path(0), S_IFSOCK | mode, 0));
    }
}

/* A chain of directories with long names, deep enough that the path no longer fits. */
static void go_deep(void) {
    char path[8192];
    snprintf(path, sizeof path, "%s/m0", world.root);
    say_path(path);
    int depth = 0;
    for (; depth < 30; depth++) {
        if (mkdir(path, 0755) != 0 && errno != EEXIST) {
            break;
        }
        size_t used = strlen(path);
        path[used] = '/';
        memset(path + used + 1, 'p', 200);
        path[used + 201] = 0;
    }
    say(" errno=%s", strerrorname_np(errno));
    for (int i = depth; i > 0; i--) {
        *strrchr(path, '/') = 0;
        if (rmdir(path) != 0) {
            say(" %d:%s", i, strerrorname_np(errno));
            break;
        }
    }
    /* The root's length differs between the two sides; the depth it leaves room for need not. */
    say(" deep=%d", depth > 15);
}

const struct operation name_operations[] = {
    {"mkdir", NULL, 6, make_directory},
    {"rmdir", NULL, 3, remove_directory},
    {"unlink", NULL, 5, unlink_one},
    {"remove", NULL, 1, remove_any},
    {"rename", NULL, 7, rename_one},
    {"link", "links", 4, link_one},
    {"symlink", "symlinks", 4, link_symbolic},
    {"readlink", NULL, 2, read_link},
    {"mknod", "nodes", 3, make_node},
    {"deep", NULL, 1, go_deep},
    {NULL, NULL, 0, NULL},
};
