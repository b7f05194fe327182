/* A program of root's that becomes another user, in all the ways there are, and tries everything:
 * what it is told, and whose what it makes is. Arguments: which way, and a directory of root's. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "check.h"

enum { NOBODY = 65534, GROUP = 4242 };

static int theirs_open = -1;

static void say(const char *what, long told) {
    printf("%s: %s\n", what, told < 0 ? strerrorname_np(errno) : "done");
    fflush(stdout);
}

#define TRY(call) say(#call, (long)(call))

static int closed(int fd) {
    if (fd >= 0) {
        close(fd);
    }
    return fd;
}

static int file(const char *name, mode_t mode) {
    int fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
    CHECK(fd >= 0 && write(fd, "theirs\n", 7) == 7 && fchmod(fd, mode) == 0);
    return closed(fd);
}

static void directory(const char *name, mode_t mode) {
    CHECK(mkdir(name, 0700) == 0 && chmod(name, mode) == 0);
}

static void furnish(void) {
    directory("theirs", 0755);
    file("theirs/readable", 0644);
    file("theirs/secret", 0600);
    file("theirs/writable", 0666);
    file("theirs/group", 0640);
    CHECK(chown("theirs/group", 0, GROUP) == 0);
    file("theirs/others", 0604);
    CHECK(chown("theirs/others", 0, GROUP) == 0);
    directory("theirs/empty", 0755);
    directory("theirs/closed", 0700);
    file("theirs/closed/inside", 0666);
    directory("theirs/passage", 0711);
    file("theirs/passage/inside", 0644);
    directory("sticky", 01777);
    file("sticky/theirs", 0666);
    directory("open", 0777);
    for (int at = 0; at < 4; at++) {
        char name[32];
        snprintf(name, sizeof name, "open/theirs-%d", at);
        file(name, 0644);
    }
    directory("open/group", 02777);
    CHECK(chown("open/group", 0, GROUP) == 0 && chmod("open/group", 02777) == 0);
    theirs_open = open("theirs/secret", O_RDWR);
    CHECK(theirs_open >= 0);
}

static const char *prefix = "";

static const char *own(const char *name) {
    static _Thread_local char path[2][64];
    static _Thread_local int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[0], "open/%s%s", prefix, name);
    return path[turn];
}

static long written(const char *name, size_t bytes) {
    int fd = open(name, O_CREAT | O_RDWR, 0644);
    if (fd < 0) {
        return -1;
    }
    static char block[1 << 16];
    for (size_t done = 0; done < bytes; done += sizeof block) {
        CHECK(write(fd, block, sizeof block) == sizeof block);
    }
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    map[7] = 'x';
    CHECK(munmap(map, 4096) == 0);
    CHECK(pread(fd, block, 8, 0) == 8 && block[7] == 'x');
    return closed(fd);
}

static void opens(void) {
    TRY(closed(open("theirs/readable", O_RDONLY)));
    TRY(closed(open("theirs/readable", O_RDWR)));
    TRY(closed(open("theirs/secret", O_RDONLY)));
    TRY(closed(open("theirs/secret", O_WRONLY | O_TRUNC)));
    TRY(closed(open("theirs/secret", O_PATH)));
    TRY(closed(open("theirs/writable", O_WRONLY)));
    TRY(closed(open("theirs/group", O_RDONLY)));
    TRY(closed(open("theirs/others", O_RDONLY)));
    TRY(closed(open("theirs/closed", O_RDONLY | O_DIRECTORY)));
    TRY(closed(open("theirs/closed/inside", O_RDONLY)));
    TRY(closed(open("theirs/closed/new", O_CREAT | O_WRONLY, 0644)));
    TRY(closed(open("theirs/passage", O_RDONLY | O_DIRECTORY)));
    TRY(closed(open("theirs/passage/inside", O_RDONLY)));
    TRY(closed(open("theirs/new", O_CREAT | O_WRONLY, 0644)));
    TRY(closed(open("theirs", O_TMPFILE | O_WRONLY, 0644)));
    TRY(closed(open("sticky/theirs", O_WRONLY)));
}

static void looks(void) {
    struct stat found;
    TRY(stat("theirs/secret", &found));
    TRY(stat("theirs/closed/inside", &found));
    TRY(stat("theirs/closed/missing", &found));
    TRY(access("theirs/secret", R_OK));
    TRY(faccessat(AT_FDCWD, "theirs/secret", R_OK, AT_EACCESS));
    TRY(access("theirs/closed/inside", F_OK));
    TRY(faccessat(AT_FDCWD, "theirs/closed/inside", F_OK, AT_EACCESS));
    TRY(access("theirs", W_OK));
    char bytes[8];
    TRY(readlink("theirs/closed/link", bytes, sizeof bytes));
    TRY(getxattr("theirs/secret", "user.none", bytes, sizeof bytes));
    TRY(chdir("theirs/closed"));
}

static void changes(void) {
    TRY(truncate("theirs/readable", 0));
    TRY(truncate("theirs/writable", 3));
    TRY(chmod("theirs/writable", 0777));
    TRY(chmod("theirs", 0777));
    TRY(chown("theirs/writable", NOBODY, -1));
    TRY(utimensat(AT_FDCWD, "theirs/secret", NULL, 0));
    TRY(unlink("theirs/readable"));
    TRY(rename("theirs/readable", "theirs/renamed"));
    TRY(rename("theirs/readable", "open/taken"));
    TRY(rename("open/theirs-1", "theirs/readable"));
    TRY(rmdir("theirs/empty"));
    TRY(mkdir("theirs/made", 0755));
    TRY(symlink("x", "theirs/link"));
    TRY(link("theirs/readable", "theirs/linked"));
    TRY(link("theirs/secret", own("stolen")));
    TRY(unlink("sticky/theirs"));
    TRY(rename("sticky/theirs", "sticky/renamed"));
    TRY(setxattr("theirs/readable", "user.a", "b", 1, 0));
    /* What was opened by root is open, whoever uses it. */
    char bytes[4];
    TRY(pread(theirs_open, bytes, 4, 0));
    TRY(pwrite(theirs_open, "us", 2, 0));
    TRY(ftruncate(theirs_open, 5));
    TRY(fchmod(theirs_open, 0777));
    TRY(fchown(theirs_open, NOBODY, -1));
    TRY(futimens(theirs_open, NULL));
    struct stat found;
    TRY(fstat(theirs_open, &found));
    TRY(closed(open("/proc/self/fd/9", O_RDONLY)));
}

static void makes(void) {
    for (int at = 0; at < 12; at++) {
        char name[32];
        snprintf(name, sizeof name, "small-%d", at);
        CHECK(written(own(name), 1 << 16) >= 0);
    }
    int fd = open(own("private"), O_CREAT | O_EXCL | O_RDWR, 0600);
    CHECK(fd >= 0 && write(fd, "ours", 4) == 4);
    TRY(fchmod(fd, 0640));
    TRY(fchown(fd, 0, -1));
    TRY(fchown(fd, -1, 0));
    TRY(fchown(fd, -1, getegid()));
    closed(fd);
    TRY(written(own("large"), 70 << 20));
    TRY(truncate(own("large"), 1 << 16));
    TRY(mkdir(own("directory"), 0755));
    TRY(written(own("directory/inside"), 1 << 16));
    TRY(written("open/group/inherits", 1 << 16));
    TRY(mkdir(own("moved"), 0700));
    TRY(rename(own("moved"), own("directory/moved")));
    TRY(symlink("nowhere", own("link")));
    TRY(link(own("small-1"), own("small-1-again")));
    TRY(rename(own("small-2"), own("small-2-moved")));
    TRY(unlink(own("small-3")));
    TRY(chmod(own("small-4"), 0600));
    TRY(chown(own("small-4"), 0, 0));
    TRY(closed(open(own("small-4"), O_RDWR)));
    TRY(unlink(prefix[0] ? "open/theirs-2" : "open/theirs-0"));
    fd = open("open", O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0);
    TRY(linkat(fd, "", AT_FDCWD, own("unnamed"), AT_EMPTY_PATH) == 0 || errno == ENOENT);
    closed(fd);
    TRY(unlink("open/group/inherits"));
}

static int mode_of(const char *name) {
    struct stat found;
    CHECK(stat(name, &found) == 0);
    return (int)(found.st_mode & 07777);
}

/* Who is not root takes set-id bits off by writing. */
static void takes_set_id_off(void) {
    static const mode_t modes[] = {04755, 02755, 02745, 06777};
    for (int at = 0; at < 4; at++) {
        for (int way = 0; way < 5; way++) {
            char name[32];
            snprintf(name, sizeof name, "set-id-%d-%d", at, way);
            int fd = open(own(name), O_CREAT | O_RDWR, 0600);
            CHECK(fd >= 0 && write(fd, "program", 7) == 7 && fchmod(fd, modes[at]) == 0);
            CHECK(write(fd, "", 0) == 0);
            printf("%s is %o", name, mode_of(own(name)));
            int other = open(own(name), O_WRONLY | (way == 0 ? O_TRUNC : O_APPEND));
            CHECK(other >= 0);
            switch (way) {
            case 0: break;
            case 1: CHECK(write(other, "x", 1) == 1); break;
            case 2: CHECK(pwrite(fd, "x", 1, 3) == 1); break;
            case 3: CHECK(ftruncate(fd, 3) == 0); break;
            default: CHECK(truncate(own(name), 3) == 0);
            }
            printf(", then %o\n", mode_of(own(name)));
            closed(fd);
            closed(other);
        }
    }
}

static void everything(void) {
    takes_set_id_off();
    opens();
    looks();
    changes();
    makes();
}

static void as_root_again(void) {
    printf("root again\n");
    int of_root = open("open/of-root-set-id", O_CREAT | O_RDWR, 0600);
    CHECK(of_root >= 0 && fchmod(of_root, 06755) == 0 && write(of_root, "x", 1) == 1);
    CHECK(closed(of_root) == of_root && mode_of("open/of-root-set-id") == 06755);
    TRY(closed(open("theirs/secret", O_RDWR)));
    TRY(chmod("theirs/writable", 0666));
    TRY(closed(open("theirs/closed/inside", O_RDONLY)));
    TRY(written("theirs/closed/new", 1 << 16));
    TRY(written("open/of-root", 1 << 16));
}

static void by_effective_ids(void) {
    CHECK(setgroups(0, NULL) == 0 && setegid(NOBODY) == 0 && seteuid(NOBODY) == 0);
    everything();
    CHECK(seteuid(0) == 0 && setegid(0) == 0);
    as_root_again();
}

/* For good, in a child, and then in a child of that. */
static void by_fork(void) {
    for (int generation = 0; generation < 3; generation++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child != 0) {
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
            if (generation > 0) {
                exit(0);
            }
            as_root_again();
            return;
        }
        printf("generation %d\n", generation);
        if (generation == 0) {
            CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
            everything();
        } else if (generation == 1) {
            FAILS(setuid(0), EPERM);
            prefix = "grandchild-";
            everything();
        } else {
            prefix = "last-";
            makes();
            exit(0);
        }
    }
}

static pthread_barrier_t barrier;

static void *as_files_user(void *unused) {
    CHECK(setfsgid(NOBODY) == 0 && setfsuid(NOBODY) == 0);
    pthread_barrier_wait(&barrier);
    everything();
    pthread_barrier_wait(&barrier);
    return unused;
}

static void owner(const char *name, uid_t uid) {
    struct stat found;
    CHECK(stat(name, &found) == 0 && found.st_uid == uid);
}

static void *creates(void *own_uid) {
    uid_t uid = (uid_t)(uintptr_t)own_uid;
    if (uid != 0) {
        setfsgid(uid);
        setfsuid(uid);
    }
    for (int at = 0; at < 300; at++) {
        char name[64];
        snprintf(name, sizeof name, "open/of-%u-%d", uid, at);
        int fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
        CHECK(fd >= 0 && write(fd, "x", 1) == 1 && closed(fd) == fd);
        owner(name, uid);
        int again = open(name, O_RDWR);
        CHECK(again >= 0 && closed(again) == again);
        if (at % 3 != 0) {
            CHECK(unlink(name) == 0);
        }
        int secret = open("theirs/secret", O_RDONLY);
        CHECK((secret >= 0) == (uid == 0) && (uid != 0 || closed(secret) == secret));
    }
    return NULL;
}

static void by_threads(void) {
    pthread_t other, many[4];
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&other, NULL, as_files_user, NULL) == 0);
    pthread_barrier_wait(&barrier);
    for (int round = 0; round < 50; round++) {
        int fd = open("theirs/secret", O_RDWR);
        CHECK(fd >= 0 && closed(fd) == fd);
    }
    pthread_barrier_wait(&barrier);
    CHECK(pthread_join(other, NULL) == 0);
    as_root_again();
    static const uid_t users[] = {0, NOBODY, 1234, 0};
    for (int at = 0; at < 3; at++) {
        void *uid = (void *)(uintptr_t)users[at];
        CHECK(pthread_create(&many[at], NULL, creates, uid) == 0);
    }
    for (int at = 0; at < 3; at++) {
        CHECK(pthread_join(many[at], NULL) == 0);
    }
}

static void *waits(void *unused) {
    pthread_barrier_wait(&barrier);
    TRY(closed(open("theirs/secret", O_RDONLY)));
    owner("theirs/secret", 0);
    TRY(written(own("by-a-thread"), 1 << 16));
    pthread_barrier_wait(&barrier);
    return unused;
}

/* libc's calls change all threads; and groups count as ids do. */
static void by_all_calls(void) {
    pthread_t other;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&other, NULL, waits, NULL) == 0);
    CHECK(setresgid(NOBODY, NOBODY, 0) == 0 && setresuid(NOBODY, NOBODY, 0) == 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK(pthread_join(other, NULL) == 0);
    TRY(access("theirs/secret", R_OK));
    CHECK(setresuid(0, 0, 0) == 0);
    static const gid_t groups[] = {77, GROUP};
    CHECK(setgroups(2, groups) == 0 && setreuid(-1, NOBODY) == 0);
    TRY(access("theirs/secret", R_OK));
    TRY(closed(open("theirs/group", O_RDONLY)));
    TRY(closed(open("theirs/others", O_RDONLY)));
    TRY(chown(own("by-a-thread"), -1, GROUP));
    TRY(chown(own("by-a-thread"), -1, 78));
    CHECK(seteuid(0) == 0 && initgroups("nobody", 1234) == 0);
    CHECK(setregid(-1, 1234) == 0 && seteuid(NOBODY) == 0);
    TRY(closed(open("theirs/group", O_RDONLY)));
    TRY(closed(open("theirs/others", O_RDONLY)));
    TRY(written(own("of-the-other-group"), 1 << 16));
    CHECK(seteuid(0) == 0 && setgid(0) == 0);
    as_root_again();
}

/* By number, the kernel changes the thread that calls, and no other. */
static void *by_number(void *unused) {
    CHECK(syscall(SYS_setgroups, 0, NULL) == 0 && syscall(SYS_setresgid, NOBODY, NOBODY, -1) == 0);
    CHECK(syscall(SYS_setresuid, -1, NOBODY, -1) == 0);
    pthread_barrier_wait(&barrier);
    opens();
    makes();
    pthread_barrier_wait(&barrier);
    return unused;
}

static void by_numbers(void) {
    pthread_t other;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&other, NULL, by_number, NULL) == 0);
    pthread_barrier_wait(&barrier);
    int fd = open("theirs/secret", O_RDWR);
    CHECK(fd >= 0 && closed(fd) == fd && geteuid() == 0);
    pthread_barrier_wait(&barrier);
    CHECK(pthread_join(other, NULL) == 0);
    as_root_again();
}

/* One that closes all it does not know, as daemons do, before and after. */
static void by_a_daemon(void) {
    closefrom(3);
    CHECK(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    closefrom(3);
    for (int fd = 3; fd < 2000; fd++) {
        close(fd);
    }
    theirs_open = -1;
    opens();
    makes();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prefix = "child-";
        makes();
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 3 && chdir(arguments[2]) == 0);
    umask(022);
    furnish();
    if (strcmp(arguments[1], "effective") == 0) {
        by_effective_ids();
    } else if (strcmp(arguments[1], "fork") == 0) {
        by_fork();
    } else if (strcmp(arguments[1], "threads") == 0) {
        by_threads();
    } else if (strcmp(arguments[1], "calls") == 0) {
        by_all_calls();
    } else if (strcmp(arguments[1], "numbers") == 0) {
        by_numbers();
    } else if (strcmp(arguments[1], "daemon") == 0) {
        by_a_daemon();
    } else {
        return 2;
    }
    return 0;
}
