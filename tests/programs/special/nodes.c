/* Names of FIFOs and sockets under chmod, chown, link, rename, unlink and open, as root and as
 * somebody else: what suites of POSIX file systems ask of every type of file. */
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "../linux/told.h"

enum { SOMEBODY = 65533, ANOTHER = 65532 };

static const mode_t types[] = {S_IFIFO, S_IFSOCK, S_IFREG};
static struct stat before;

static void show(const char *name) {
    struct stat status;
    int found = lstat(name, &status);
    printf("  %s: %s", name, found == 0 ? "" : strerrorname_np(errno));
    if (found == 0) {
        printf("%o links %lu owner %u:%u", status.st_mode, (unsigned long)status.st_nlink,
               status.st_uid, status.st_gid);
    }
    printf("\n");
}

static void make(const char *name, mode_t type, mode_t mode) {
    MUST(mknod(name, type | mode, 0) == 0);
}

static void remember(const char *name) {
    MUST(lstat(name, &before) == 0);
    usleep(12000);
}

/* Whether the time of change of a name has moved since. */
static int later(const char *name) {
    struct stat now;
    MUST(lstat(name, &now) == 0);
    return now.st_ctim.tv_sec > before.st_ctim.tv_sec ||
           (now.st_ctim.tv_sec == before.st_ctim.tv_sec &&
            now.st_ctim.tv_nsec > before.st_ctim.tv_nsec);
}

static void attributes(mode_t type) {
    make("n", type, 0644);
    remember("n");
    TELL(chmod("n", 0111));
    TELL(later("n"));
    TELL(chmod("n", 07777));
    show("n");
    remember("n");
    TELL(chown("n", SOMEBODY, ANOTHER));
    TELL(later("n"));
    show("n");
    TELL(chmod("n", 06555));
    TELL(lchown("n", (uid_t)-1, (gid_t)-1));
    show("n");
    TELL(symlink("n", "s"));
    TELL(chmod("s", 0600));
    TELL(lchown("s", ANOTHER, ANOTHER));
    show("n");
    show("s");
    TELL(fchmodat(AT_FDCWD, "s", 0, AT_SYMLINK_NOFOLLOW));
    struct timespec times[2] = {{.tv_sec = 5}, {.tv_nsec = UTIME_OMIT}};
    TELL(utimensat(AT_FDCWD, "n", times, 0));
    struct stat status;
    MUST(stat("n", &status) == 0);
    printf("%ld\n", (long)status.st_atim.tv_sec);
    TELL(unlink("s"));
    TELL(unlink("n"));
}

static void names(mode_t type) {
    make("n", type, 0600);
    remember("n");
    TELL(link("n", "m"));
    TELL(later("n"));
    show("n");
    show("m");
    TELL(link("n", "m"));
    TELL(link("n/x", "o"));
    TELL(link("n", "n/x"));
    TELL(unlink("n/x"));
    remember("m");
    TELL(unlink("n"));
    TELL(later("m"));
    show("m");
    TELL(rename("m", "m"));
    TELL(rename("m", "o"));
    TELL(mkdir("d", 0755));
    TELL(rename("o", "d"));
    TELL(rename("d", "o"));
    TELL(rename("o", "d/o"));
    TELL(rmdir("d"));
    for (int i = 0; i < 3; i++) {
        make("over", types[i], 0600);
        TELL(rename("d/o", "over"));
        show("over");
        TELL(rename("over", "d/o"));
        make("under", types[i], 0601);
        TELL(rename("under", "d/o"));
        show("d/o");
        TELL(unlink("d/o"));
        make("d/o", type, 0600);
    }
    TELL(renameat2(AT_FDCWD, "d/o", AT_FDCWD, "new", RENAME_NOREPLACE));
    make("d/o", S_IFREG, 0640);
    TELL(renameat2(AT_FDCWD, "d/o", AT_FDCWD, "new", RENAME_NOREPLACE));
    TELL(renameat2(AT_FDCWD, "d/o", AT_FDCWD, "new", RENAME_EXCHANGE));
    show("d/o");
    show("new");
    TELL(mknod("new", type | 0600, 0));
    TELL(open("new", O_RDONLY | O_CREAT | O_EXCL, 0600));
    TELL(mkdir("new", 0600));
    TELL(symlink("x", "new"));
    TELL(unlink("d/o"));
    TELL(unlink("new"));
    TELL(rmdir("d"));
}

static void become(uid_t user, gid_t group) {
    MUST(setegid(0) == 0 || geteuid() != 0);
    MUST(seteuid(0) == 0);
    MUST(setgroups(0, NULL) == 0 && setegid(group) == 0 && seteuid(user) == 0);
}

static void tell_open(const char *name, int flags) {
    int fd = open(name, flags);
    const char *why = fd < 0 ? strerrorname_np(errno) : "";
    printf("open %s %o: %d %s\n", name, flags, fd < 0 ? -1 : 0, why);
    if (fd >= 0) {
        close(fd);
    }
}

static void others(mode_t type) {
    MUST(mkdir("sticky", 01777) == 0 && chmod("sticky", 01777) == 0);
    become(SOMEBODY, SOMEBODY);
    make("sticky/n", type, 0640);
    show("sticky/n");
    TELL(chmod("sticky/n", 04640));
    TELL(chown("sticky/n", ANOTHER, (gid_t)-1));
    TELL(chown("sticky/n", (uid_t)-1, SOMEBODY));
    TELL(chown("sticky/n", (uid_t)-1, ANOTHER));
    show("sticky/n");
    become(ANOTHER, ANOTHER);
    TELL(chmod("sticky/n", 0666));
    TELL(chown("sticky/n", ANOTHER, ANOTHER));
    TELL(unlink("sticky/n"));
    TELL(rename("sticky/n", "sticky/m"));
    make("sticky/mine", type, 0600);
    TELL(rename("sticky/mine", "sticky/n"));
    TELL(utimensat(AT_FDCWD, "sticky/n", NULL, 0));
    struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 5}};
    TELL(utimensat(AT_FDCWD, "sticky/n", times, 0));
    for (mode_t mode = 0600; mode <= 0607; mode++) {
        become(SOMEBODY, SOMEBODY);
        MUST(chmod("sticky/n", mode) == 0);
        become(ANOTHER, ANOTHER);
        if (type != S_IFIFO || mode & 6) {
            /* Neither waits: there is no other end, or both are here. */
            tell_open("sticky/n", O_RDONLY | O_NONBLOCK);
            tell_open("sticky/n", O_WRONLY | O_NONBLOCK);
            tell_open("sticky/n", O_RDWR);
        }
        TELL(access("sticky/n", R_OK));
        TELL(faccessat(AT_FDCWD, "sticky/n", W_OK, AT_EACCESS));
        TELL(utimensat(AT_FDCWD, "sticky/n", NULL, 0));
    }
    become(SOMEBODY, SOMEBODY);
    TELL(unlink("sticky/mine"));
    TELL(mknod("n", type | 0600, 0));
    become(0, 0);
    TELL(unlink("sticky/mine"));
    TELL(unlink("sticky/n"));
    TELL(rmdir("sticky"));
}

int main(void) {
    umask(0);
    for (int i = 0; i < 2; i++) {
        printf("type %o\n", types[i]);
        attributes(types[i]);
        names(types[i]);
        if (getuid() == 0) {
            others(types[i]);
        }
    }
    /* These stay. */
    make("kept", S_IFIFO, 0620);
    make("lost", S_IFSOCK, 0600);
    return 0;
}
