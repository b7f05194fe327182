/* Names in a directory: the same answers are expected from any POSIX one on Linux. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "check.h"

static void make(const char *name) {
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    CHECK(fd >= 0 && close(fd) == 0);
}

/* Of two paths a link's first is looked up whole, a rename's second before the first's end. */
static void which_path_is_at_fault(void) {
    make("file");
    CHECK(symlink("file", "to-file") == 0 && symlink("nowhere", "to-nowhere") == 0);
    FAILS(link("missing", "file/../new"), ENOENT);
    FAILS(link("file", "file/../new"), ENOTDIR);
    FAILS(rename("missing", "file/../new"), ENOTDIR);
    FAILS(rename("to-file/missing", "nowhere/../new"), ENOTDIR);
    FAILS(rename("to-nowhere/missing", "file/../new"), ENOENT);
    char longest[5000];
    memset(longest, 'n', sizeof longest);
    longest[4200] = 0;
    FAILS(symlink(longest, ""), ENAMETOOLONG);
    FAILS(symlink("", "file/new"), ENOENT);
}

static void nodes(void) {
    CHECK(mknod("regular", S_IFREG | 0640, 0) == 0);
    struct stat status;
    CHECK(stat("regular", &status) == 0 && status.st_mode == (S_IFREG | 0640));
    FAILS(mknod("regular/", S_IFREG | 0640, 0), EEXIST);
    FAILS(mknod("missing/", S_IFREG | 0640, 0), ENOENT);
    FAILS(mknod(".", S_IFREG | 0640, 0), EEXIST);
    FAILS(mkfifo("regular", 0600), EEXIST);
}

/* What is made goes where links lead. */
static void through_links(void) {
    CHECK(mkdir("directory", 0755) == 0);
    CHECK(symlink("directory", "to-directory") == 0 && symlink("none/.", "to-dot") == 0);
    int fd = open("to-directory", O_TMPFILE | O_RDWR, 0600);
    CHECK(fd >= 0 && write(fd, "made", 4) == 4);
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    CHECK(linkat(AT_FDCWD, name, AT_FDCWD, "to-directory/made", AT_SYMLINK_FOLLOW) == 0);
    CHECK(close(fd) == 0 && access("directory/made", F_OK) == 0);
    FAILS(open("to-nowhere", O_TMPFILE | O_RDWR, 0600), ENOENT);
    FAILS(open("to-file", O_TMPFILE | O_RDWR, 0600), ENOTDIR);
    FAILS(open("to-dot", O_WRONLY | O_CREAT, 0600), ENOENT);
    FAILS(open("directory/.", O_WRONLY | O_CREAT, 0600), EISDIR);
    fd = open("to-file", O_PATH | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && close(fd) == 0);
    int removed = mkdir("removed", 0755) == 0 ? open("removed", O_RDONLY) : -1;
    CHECK(removed >= 0 && rmdir("removed") == 0);
    snprintf(name, sizeof name, "/proc/self/fd/%d", removed);
    FAILS(linkat(AT_FDCWD, name, AT_FDCWD, "again", AT_SYMLINK_FOLLOW), EPERM);
    CHECK(close(removed) == 0);
    FAILS(lsetxattr("to-file", "user.", "", 0, 0), EPERM);
}

/* Whether another process finds the first bytes of the file locked, and where. */
static int locked(int fd, off_t *start) {
    pid_t child = fork();
    if (child == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 40};
        _exit(fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK ? 255 : (int)lock.l_start);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    *start = WEXITSTATUS(status);
    return *start != 255;
}

/* A descriptor that only stands for a path takes no lock along when it is closed. */
static void path_descriptors(void) {
    off_t start;
    int fd = open("file", O_RDWR), path = open("file", O_PATH);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 5, .l_len = 3};
    CHECK(fd >= 0 && path >= 0 && fcntl(fd, F_SETLK, &lock) == 0);
    CHECK(close(path) == 0 && locked(fd, &start) && start == 5);
    CHECK(close(fd) == 0);
    int directory = open(".", O_RDONLY), out = open("file", O_WRONLY);
    CHECK(sendfile(out, directory, NULL, 0) == 0);
    FAILS(sendfile(out, directory, NULL, 1), EINVAL);
    CHECK(close(directory) == 0 && close(out) == 0);
}

/* Of two that hold locks, who has held one for longer is told. */
static void first_holder(void) {
    int fd = open("file", O_RDWR), ready[2], over[2];
    CHECK(fd >= 0 && pipe(ready) == 0 && pipe(over) == 0);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 30, .l_len = 1};
    char byte;
    if (fork() == 0) {
        CHECK(close(over[1]) == 0);
        int done = fcntl(fd, F_SETLK, &lock);
        CHECK(write(ready[1], "", 1) == 1);
        _exit(done != 0 || read(over[0], &byte, 1) != 0);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    lock.l_start = 10;
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    off_t start;
    CHECK(locked(fd, &start) && start == 30);
    CHECK(close(over[1]) == 0);
    int status;
    CHECK(wait(&status) > 0 && status == 0);
    CHECK(close(fd) == 0);
}

/* A directory is not removed by a dot, nor one that holds what a `..` came from. */
static void removed_by_dots(void) {
    CHECK(mkdir("above", 0755) == 0 && mkdir("above/below", 0755) == 0);
    CHECK(symlink("above", "to-above") == 0);
    FAILS(rmdir("above/below/.."), ENOTEMPTY);
    FAILS(rmdir("above/below/../"), ENOTEMPTY);
    FAILS(rmdir("above/below/../.."), ENOTEMPTY);
    FAILS(rmdir("to-above/below/.."), ENOTEMPTY);
    FAILS(rmdir("above/below/."), EINVAL);
    FAILS(rmdir("to-above/."), EINVAL);
    FAILS(rmdir("above/missing/.."), ENOENT);
    FAILS(rmdir("file/.."), ENOTDIR);
    CHECK(rmdir("above/below") == 0 && unlink("to-above") == 0 && rmdir("above") == 0);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    which_path_is_at_fault();
    removed_by_dots();
    nodes();
    through_links();
    path_descriptors();
    first_holder();
    return 0;
}
