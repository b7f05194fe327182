/* System-call style I/O in a directory: the same answers are expected from any POSIX one. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"

static char block[300000];
static char back[300000];

static void fill(void) {
    for (size_t i = 0; i < sizeof block; i++) {
        block[i] = (char)(i * 31 + i / 4096);
    }
}

static void reads_and_writes(void) {
    int fd = open("data", O_RDWR | O_CREAT | O_EXCL, 0640);
    CHECK(fd >= 0);
    FAILS(open("data", O_RDWR | O_CREAT | O_EXCL, 0640), EEXIST);
    CHECK(write(fd, block, sizeof block) == (ssize_t)sizeof block);
    CHECK(lseek(fd, 0, SEEK_CUR) == (off_t)sizeof block);
    CHECK(read(fd, back, 10) == 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(read(fd, back, sizeof back) == (ssize_t)sizeof back);
    CHECK(memcmp(block, back, sizeof back) == 0);
    CHECK(pread(fd, back, 1000, 12345) == 1000 && memcmp(back, block + 12345, 1000) == 0);
    CHECK(pread(fd, back, 1000, sizeof block - 10) == 10);
    CHECK(pwrite(fd, "hello", 5, 4094) == 5);
    CHECK(pread(fd, back, 7, 4093) == 7);
    CHECK(back[0] == block[4093] && memcmp(back + 1, "hello", 5) == 0 && back[6] == block[4099]);
    CHECK(lseek(fd, -5, SEEK_END) == (off_t)sizeof block - 5);
    CHECK(lseek(fd, 2, SEEK_CUR) == (off_t)sizeof block - 3);
    FAILS(lseek(fd, -1, SEEK_SET), EINVAL);
    FAILS(pread(fd, back, 1, -1), EINVAL);
    CHECK(lseek(fd, 1000000, SEEK_SET) == 1000000);
    CHECK(write(fd, "x", 1) == 1);
    CHECK(pread(fd, back, 4, 999997) == 4 && memcmp(back, "\0\0\0x", 4) == 0);
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && st.st_size == 1000001 && S_ISREG(st.st_mode));
    CHECK((st.st_mode & 07777) == (0640 & ~022));
    CHECK(ftruncate(fd, 100) == 0);
    CHECK(fstat(fd, &st) == 0 && st.st_size == 100);
    CHECK(ftruncate(fd, 5000) == 0);
    CHECK(pread(fd, back, 5000, 0) == 5000 && back[99] == block[99] && back[100] == 0);
    CHECK(back[4095] == 0 && back[4999] == 0);
    CHECK(fsync(fd) == 0 && fdatasync(fd) == 0);
    CHECK(close(fd) == 0);
    FAILS(close(fd), EBADF);
    FAILS(read(fd, back, 1), EBADF);
    CHECK(truncate("data", 7) == 0);
    CHECK(stat("data", &st) == 0 && st.st_size == 7);
}

static void rights(void) {
    int fd = open("data", O_RDONLY);
    CHECK(fd >= 0);
    FAILS(write(fd, "x", 1), EBADF);
    FAILS(ftruncate(fd, 1), EINVAL);
    CHECK((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY);
    CHECK(close(fd) == 0);
    fd = open("data", O_WRONLY);
    CHECK(fd >= 0);
    FAILS(read(fd, back, 1), EBADF);
    CHECK(close(fd) == 0);
    FAILS(open("missing", O_RDONLY), ENOENT);
    FAILS(open("data/below", O_RDONLY), ENOTDIR);
    FAILS(open("data/", O_RDONLY), ENOTDIR);
    FAILS(open("data", O_RDONLY | O_DIRECTORY), ENOTDIR);
    CHECK(access("data", R_OK | W_OK) == 0);
    FAILS(access("missing", F_OK), ENOENT);
    CHECK(chmod("data", 0604) == 0);
    struct stat st;
    CHECK(stat("data", &st) == 0 && (st.st_mode & 07777) == 0604);
    char name[300];
    memset(name, 'n', sizeof name);
    name[256] = 0;
    FAILS(open(name, O_RDONLY), ENAMETOOLONG);
    name[255] = 0;
    FAILS(open(name, O_RDONLY), ENOENT);
}

static void appends(void) {
    int one = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    int two = open("log", O_WRONLY | O_APPEND);
    CHECK(one >= 0 && two >= 0);
    CHECK(write(one, "aaa", 3) == 3);
    CHECK(write(two, "bb", 2) == 2);
    CHECK(write(one, "c", 1) == 1);
    CHECK(lseek(one, 0, SEEK_CUR) == 6);
    CHECK(fcntl(one, F_GETFL) & O_APPEND);
    CHECK(fcntl(two, F_SETFL, 0) == 0);
    CHECK(pwrite(two, "Z", 1, 0) == 1);
    CHECK(fcntl(two, F_SETFL, O_APPEND) == 0);
    CHECK(write(two, "d", 1) == 1);
    CHECK(close(one) == 0 && close(two) == 0);
    int fd = open("log", O_RDONLY);
    CHECK(read(fd, back, 100) == 7 && memcmp(back, "Zaabbcd", 7) == 0);
    CHECK(close(fd) == 0);
}

static void vectors(void) {
    int fd = open("vector", O_RDWR | O_CREAT | O_TRUNC, 0644);
    struct iovec out[3] = {{"one", 3}, {"", 0}, {block, 200000}};
    CHECK(writev(fd, out, 3) == 200003);
    char head[2];
    struct iovec in[2] = {{head, 2}, {back, 200001}};
    CHECK(preadv(fd, in, 2, 0) == 200003);
    CHECK(memcmp(head, "on", 2) == 0 && back[0] == 'e' && memcmp(back + 1, block, 200000) == 0);
    CHECK(pwritev(fd, out, 1, 200003) == 3);
    CHECK(lseek(fd, 200000, SEEK_SET) == 200000);
    CHECK(readv(fd, in, 2) == 6);
    CHECK(close(fd) == 0);
}

static void shared_offsets(void) {
    int fd = open("vector", O_RDWR | O_TRUNC);
    int copy = dup(fd);
    CHECK(copy >= 0 && copy != fd);
    CHECK(write(fd, "ab", 2) == 2);
    CHECK(write(copy, "cd", 2) == 2);
    CHECK(lseek(fd, 0, SEEK_CUR) == 4);
    CHECK(close(fd) == 0);
    CHECK(write(copy, "e", 1) == 1);
    int high = fcntl(copy, F_DUPFD_CLOEXEC, 100);
    CHECK(high >= 100 && (fcntl(high, F_GETFD) & FD_CLOEXEC));
    CHECK(dup2(high, 90) == 90 && (fcntl(90, F_GETFD) & FD_CLOEXEC) == 0);
    CHECK(close(copy) == 0 && close(high) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(write(90, "child", 5) == 5);
        CHECK(close(90) == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(lseek(90, 0, SEEK_CUR) == 10);
    CHECK(pread(90, back, 100, 0) == 10 && memcmp(back, "abcdechild", 10) == 0);
    FAILS(dup2(-1, 90), EBADF);
    CHECK(pread(90, back, 100, 0) == 10);
    int null = open("/dev/null", O_RDWR);
    CHECK(null >= 0 && dup2(null, 90) == 90);
    CHECK(write(90, "x", 1) == 1 && close(90) == 0 && close(null) == 0);
}

static void unlinked(void) {
    int fd = open("gone", O_RDWR | O_CREAT, 0600);
    CHECK(write(fd, "still here", 10) == 10);
    CHECK(unlink("gone") == 0);
    FAILS(unlink("gone"), ENOENT);
    FAILS(access("gone", F_OK), ENOENT);
    CHECK(pread(fd, back, 10, 0) == 10 && memcmp(back, "still here", 10) == 0);
    CHECK(close(fd) == 0);
}

static void names(void) {
    struct stat st;
    CHECK(mkdir("d", 0755) == 0);
    FAILS(mkdir("d", 0755), EEXIST);
    FAILS(mkdir("no/d", 0755), ENOENT);
    CHECK(mkdir("d/e/", 0700) == 0);
    CHECK(stat("d/e", &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 07777) == 0700);
    int fd = open("d/f", O_WRONLY | O_CREAT, 0644);
    CHECK(fd >= 0 && write(fd, "f", 1) == 1 && close(fd) == 0);
    FAILS(rmdir("d"), ENOTEMPTY);
    FAILS(rmdir("d/f"), ENOTDIR);
    FAILS(unlink("missing"), ENOENT);
    CHECK(rename("d/f", "d/./e/../e/g") == 0);
    CHECK(stat("d/e/g", &st) == 0 && st.st_size == 1);
    FAILS(rename("d/f", "x"), ENOENT);
    CHECK(mkdir("z", 0755) == 0);
    FAILS(rename("d/e/g", "z"), EISDIR);
    FAILS(rename("z", "d/e/g"), ENOTDIR);
    CHECK(rmdir("z") == 0);
    FAILS(rename("d", "d/e/d"), EINVAL);
    CHECK(rename("log", "d/e/g") == 0);
    CHECK(stat("d/e/g", &st) == 0 && st.st_size == 7);
    int dir = open("d", O_RDONLY | O_DIRECTORY);
    CHECK(dir >= 0);
    FAILS(read(dir, back, 1), EISDIR);
    FAILS(open("d", O_WRONLY), EISDIR);
    CHECK(fstatat(dir, "e/g", &st, 0) == 0 && st.st_size == 7);
    CHECK(renameat(dir, "e/g", dir, "g") == 0);
    CHECK(unlinkat(dir, "e", AT_REMOVEDIR) == 0);
    CHECK(mkdirat(dir, "h", 0755) == 0);
    CHECK(fchdir(dir) == 0 && close(dir) == 0);
    CHECK(access("g", F_OK) == 0 && access("../data", F_OK) == 0);
    CHECK(chdir("..") == 0 && access("data", F_OK) == 0);
    CHECK(remove("d/g") == 0 && remove("d/h") == 0 && remove("d") == 0);
    char template[] = "tmp-XXXXXX";
    fd = mkstemp(template);
    CHECK(fd >= 0 && strcmp(template, "tmp-XXXXXX") != 0 && access(template, F_OK) == 0);
    CHECK(close(fd) == 0 && unlink(template) == 0);
    char made[] = "dir-XXXXXX";
    CHECK(mkdtemp(made) == made && rmdir(made) == 0);
}

static void lists(void) {
    CHECK(mkdir("list", 0755) == 0);
    char name[64];
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "list/entry-%d", i);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
        CHECK(fd >= 0 && close(fd) == 0);
    }
    DIR *dir = opendir("list");
    CHECK(dir != NULL);
    int count = 0, dots = 0;
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        int is_dot = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        dots += is_dot;
        count += !is_dot;
        struct stat st;
        CHECK(is_dot || fstatat(dirfd(dir), entry->d_name, &st, 0) == 0);
        CHECK(is_dot || entry->d_ino == st.st_ino);
    }
    CHECK(count == 500 && dots == 2);
    rewinddir(dir);
    CHECK(readdir(dir) != NULL && closedir(dir) == 0);
    struct dirent **found;
    int scanned = scandir("list", &found, NULL, alphasort);
    CHECK(scanned == 502 && strcmp(found[0]->d_name, ".") == 0);
    CHECK(strcmp(found[2]->d_name, "entry-0") == 0);
    for (int i = 0; i < scanned; i++) {
        free(found[i]);
    }
    free(found);
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "list/entry-%d", i);
        CHECK(unlink(name) == 0);
    }
    CHECK(rmdir("list") == 0);
}

static void places(const char *where) {
    char here[4096], real[4096];
    CHECK(getcwd(here, sizeof here) == here && strcmp(here, where) == 0);
    CHECK(mkdir("deep", 0755) == 0 && chdir("deep") == 0);
    CHECK(getcwd(here, sizeof here) == here);
    CHECK(strncmp(here, where, strlen(where)) == 0 && strcmp(here + strlen(where), "/deep") == 0);
    char *absolute = realpath("../deep/./../data", NULL);
    snprintf(real, sizeof real, "%s/data", where);
    CHECK(absolute != NULL && strcmp(absolute, real) == 0);
    free(absolute);
    errno = 0;
    CHECK(getcwd(here, 3) == NULL && errno == ERANGE);
    CHECK(chdir("..") == 0 && rmdir("deep") == 0);
    FAILS(chdir("data"), ENOTDIR);
    FAILS(chdir("nowhere"), ENOENT);
    struct statvfs room;
    CHECK(statvfs(".", &room) == 0 && room.f_bsize > 0);
}

static void mappings(void) {
    int fd = open("map", O_RDWR | O_CREAT, 0644);
    CHECK(write(fd, block, 10000) == 10000);
    char *map = mmap(NULL, 10000, PROT_READ, MAP_PRIVATE, fd, 0);
    CHECK(map != MAP_FAILED && memcmp(map, block, 10000) == 0 && munmap(map, 10000) == 0);
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
    CHECK(map != MAP_FAILED && memcmp(map, block + 4096, 4096) == 0);
    map[0] = 'm';
    CHECK(munmap(map, 4096) == 0);
    CHECK(pread(fd, back, 1, 4096) == 1 && back[0] == block[4096]);
    CHECK(close(fd) == 0 && unlink("map") == 0);
}

static void times(void) {
    struct timespec both[2] = {{1000000000, 5}, {1200000000, 7}};
    CHECK(utimensat(AT_FDCWD, "data", both, 0) == 0);
    struct stat st;
    CHECK(stat("data", &st) == 0);
    CHECK(st.st_mtim.tv_sec == 1200000000 && st.st_mtim.tv_nsec == 7);
    CHECK(st.st_atim.tv_sec == 1000000000);
    int fd = open("data", O_WRONLY);
    CHECK(write(fd, "y", 1) == 1 && close(fd) == 0);
    CHECK(stat("data", &st) == 0 && st.st_mtim.tv_sec > 1200000000);
}

int main(int count, char **arguments) {
    umask(022);
    fill();
    enter(count, arguments);
    reads_and_writes();
    rights();
    appends();
    vectors();
    shared_offsets();
    unlinked();
    names();
    lists();
    places(arguments[1]);
    mappings();
    times();
    CHECK(unlink("data") == 0 && unlink("vector") == 0);
    return 0;
}
