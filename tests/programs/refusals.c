/* What is refused, and with which error: one word says what is tried. Errors that tmpfs gives as
 * well are compared with it elsewhere; these are Terral's own, or at its own bounds. */
#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#include "check.h"

static const char *outside;

static void make(const char *name) {
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
}

static void elsewhere(void) {
    char there[4000], other[4000];
    snprintf(there, sizeof there, "%s/there", outside);
    snprintf(other, sizeof other, "%s/other", outside);
    make("here");
    make(there);
    FAILS(rename("here", other), EXDEV);
    FAILS(rename(there, "other"), EXDEV);
    FAILS(rename(there, "here"), EXDEV);
    FAILS(link("here", other), EXDEV);
    FAILS(link(there, "other"), EXDEV);
    FAILS(access(other, F_OK), ENOENT);
    FAILS(access("other", F_OK), ENOENT);
}

static void kinds(void) {
    FAILS(mknod("device", S_IFCHR | 0600, makedev(1, 3)), EPERM);
    FAILS(mknod("device", S_IFBLK | 0600, makedev(7, 0)), EPERM);
    FAILS(access("device", F_OK), ENOENT);
    CHECK(mkdir("directory", 0700) == 0);
    FAILS(link("directory", "other"), EPERM);
    FAILS(access("other", F_OK), ENOENT);
}

/* The names in the root that are Terral's own; elsewhere they are anybody's. */
static void own(void) {
    char of_user[64], below[80];
    snprintf(of_user, sizeof of_user, ".terral-%u", geteuid());
    const char *const names[] = {".terral", of_user};
    make("file");
    CHECK(mkdir("directory", 0700) == 0);
    for (int i = 0; i < 2; i++) {
        FAILS(open(names[i], O_WRONLY | O_CREAT, 0600), EACCES);
        FAILS(mkdir(names[i], 0700), EACCES);
        FAILS(rename("file", names[i]), EACCES);
        FAILS(link("file", names[i]), EACCES);
        FAILS(symlink("file", names[i]), EACCES);
        snprintf(below, sizeof below, "directory/%s", names[i]);
        CHECK(mkdir(below, 0700) == 0);
    }
}

static void far(void) {
    const off_t most = ((off_t)256 << 40) - 1;
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && pwrite(fd, "x", 1, most - 1) == 1);
    FAILS(pwrite(fd, "x", 1, most), EFBIG);
    FAILS(ftruncate(fd, most + 1), EFBIG);
    struct stat about;
    CHECK(fstat(fd, &about) == 0 && about.st_size == most);
    CHECK(ftruncate(fd, 0) == 0);
}

/* Says why it cannot be tried here. Children see the end of their pipe. */
static void skip(const char *why) {
    printf("skipped: %s\n", why);
    exit(0);
}

/* Children that do something, one after the other, and stay until all have. */

enum { CHILDREN = 1050 };

static int told[2], end[2];

/* Starts a child, and gives what `does` gives there. */
static int child_that(int (*does)(void)) {
    pid_t child = fork();
    if (child < 0 && errno == EAGAIN) {
        skip("there may not be so many processes here");
    }
    CHECK(child >= 0);
    if (child == 0) {
        close(end[1]);
        int answer = does();
        CHECK(write(told[1], &answer, sizeof answer) == sizeof answer);
        char nothing;
        _exit((int)read(end[0], &nothing, 1));
    }
    int answer;
    CHECK(read(told[0], &answer, sizeof answer) == sizeof answer);
    return answer;
}

static void all_end(int children) {
    close(end[1]);
    for (int i = 0; i < children; i++) {
        CHECK(wait(NULL) > 0);
    }
}

static int opens(void) {
    int error = open("file", O_RDONLY) >= 0 ? 0 : errno;
    CHECK(error == 0 || error == ENFILE);
    return error == 0;
}

/* How many a child opens. */
static int each = 15000;

static int opens_many(void) {
    int count = 0;
    while (count < each && opens()) {
        count++;
    }
    return count;
}

static void files(void) {
    const int most = 65535;
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    if (limit.rlim_max < 2000) {
        skip("a process may not open 2,000 files here");
    }
    each = limit.rlim_max < 16000 ? (int)limit.rlim_max - 1000 : each;
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0 && pipe(told) == 0 && pipe(end) == 0);
    make("file");
    int opened = 0, children = most / each + 1;
    for (int i = 0; i < children; i++) {
        opened += child_that(opens_many);
    }
    CHECK(opened > most - 120 * children && opened <= most);
    FAILS(open("file", O_RDONLY), ENFILE);
    FAILS(open("another", O_WRONLY | O_CREAT, 0600), ENFILE);
    all_end(children);
    CHECK(open("file", O_RDONLY) >= 0);
}

static void processes(void) {
    const int most = 1023;
    CHECK(pipe(told) == 0 && pipe(end) == 0);
    make("file");
    int served = 0;
    for (int i = 0; i < CHILDREN; i++) {
        served += child_that(opens);
    }
    CHECK(served > most - 10 && served <= most);
    all_end(CHILDREN);
    CHECK(pipe(end) == 0 && child_that(opens) == 1);
    all_end(1);
}

static double now(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* The server is killed once this has told that it is there, and no other comes. */
static void gone(void) {
    char ready[4000], killed[4000];
    snprintf(ready, sizeof ready, "%s/ready", outside);
    snprintf(killed, sizeof killed, "%s/killed", outside);
    make("file");
    make(ready);
    while (access(killed, F_OK) != 0) {
        usleep(1000);
    }
    double begin = now();
    FAILS(symlink("file", "link"), ENOTCONN);
    double once = now() - begin;
    CHECK(once > 8);
    begin = now();
    FAILS(symlink("file", "link"), ENOTCONN);
    FAILS(truncate("file", 5000000), ENOTCONN);
    CHECK(now() - begin < once / 2);
}

static void not_offered(void) {
    struct file_handle *handle = calloc(1, sizeof *handle + 128);
    char here[4000], path[4096];
    CHECK(getcwd(here, sizeof here) != NULL);
    snprintf(path, sizeof path, "%s/file", here);
    int mount, watcher = inotify_init(), fd = open("file", O_RDWR | O_CREAT, 0600);
    CHECK(handle != NULL && watcher >= 0 && fd >= 0);
    FAILS(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 10), EOPNOTSUPP);
    FAILS(fsetxattr(fd, "system.posix_acl_access", "", 0, 0), EOPNOTSUPP);
    FAILS(fsetxattr(fd, "trusted.any", "", 0, 0), EOPNOTSUPP);
    FAILS(name_to_handle_at(AT_FDCWD, "file", handle, &mount, 0), EOPNOTSUPP);
    FAILS(syscall(SYS_name_to_handle_at, AT_FDCWD, path, handle, &mount, 0), EOPNOTSUPP);
    FAILS(syscall(SYS_name_to_handle_at, fd, "", handle, &mount, AT_EMPTY_PATH), EOPNOTSUPP);
    FAILS(inotify_add_watch(watcher, "file", IN_MODIFY), EOPNOTSUPP);
    FAILS(fcntl(fd, F_SETLEASE, F_WRLCK), EAGAIN);
    FAILS(fcntl(open(".", O_RDONLY | O_DIRECTORY), F_NOTIFY, DN_MODIFY), EINVAL);
    FAILS(renameat2(AT_FDCWD, "file", AT_FDCWD, "other", RENAME_WHITEOUT), EINVAL);
    FAILS(open("file", 3), EINVAL);
    FAILS(syscall(SYS_io_uring_setup, 8, calloc(1, 256)), ENOSYS);
    struct stat about;
    CHECK(posix_fallocate(fd, 0, 5000) == 0 && fstat(fd, &about) == 0 && about.st_size == 5000);
    FAILS(access("other", F_OK), ENOENT);
    free(handle);
}

/* Each opens something, and makes the next; the number of the first that may not. */
static int generation(int number) {
    int fd = open("file", O_RDONLY);
    if (fd < 0) {
        CHECK(errno == ENFILE);
        return number;
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        _exit(generation(number + 1));
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void generations(void) {
    make("file");
    CHECK(generation(0) == 64);
}

int main(int count, char **arguments) {
    static const struct {
        const char *word;
        void (*tries)(void);
    } all[] = {
        {"elsewhere", elsewhere},
        {"kinds", kinds},
        {"own", own},
        {"far", far},
        {"files", files},
        {"processes", processes},
        {"generations", generations},
        {"gone", gone},
        {"not-offered", not_offered},
    };
    CHECK(count == 3);
    outside = arguments[2];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(arguments[1], all[i].word) == 0) {
            all[i].tries();
            return puts("as promised") < 0;
        }
    }
    return 2;
}
