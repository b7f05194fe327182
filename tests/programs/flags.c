/* `preadv2` and `pwritev2` with every flag, and files opened with `O_DIRECT`: each answer is
   printed. argv[1]: a directory. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "check.h"

static char text[] = "0123456789abcdef";
static char room[64];

static long long size_of(int fd) {
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0);
    return (long long)stat.st_size;
}

static void write_as(const char *name, int fd, off_t at, int flags) {
    struct iovec pieces[2] = {{text, 10}, {text + 10, 6}};
    errno = 0;
    ssize_t count = pwritev2(fd, pieces, 2, at, flags);
    printf("%s at %lld with %#x: %zd, errno %d, size %lld, offset %lld\n", name, (long long)at,
           (unsigned)flags, count, errno, size_of(fd), (long long)lseek(fd, 0, SEEK_CUR));
}

static void read_as(const char *name, int fd, off_t at, int flags) {
    struct iovec pieces[2] = {{room, 10}, {room + 10, 20}};
    errno = 0;
    ssize_t count = preadv2(fd, pieces, 2, at, flags);
    printf("%s at %lld with %#x: %zd, errno %d, offset %lld\n", name, (long long)at,
           (unsigned)flags, count, errno, (long long)lseek(fd, 0, SEEK_CUR));
}

int main(int count, char **arguments) {
    enter(count, arguments);
    int fd = open("flags", O_RDWR | O_CREAT | O_TRUNC, 0644);
    int end = open("flags", O_RDWR | O_APPEND);
    int reader = open("flags", O_RDONLY);
    CHECK(fd >= 0 && end >= 0 && reader >= 0);
    for (int bit = -1; bit < 32; bit++) {
        /* Those between came with one version of Linux or another. */
        if (bit > 4 && bit < 12) continue;
        int flags = bit < 0 ? 0 : (int)(1u << bit);
        write_as("write", fd, 3, flags);
        write_as("write here", fd, -1, flags);
        write_as("append", end, 1, flags);
        write_as("append here", end, -1, flags);
        write_as("unopened", reader, 0, flags);
        write_as("before", fd, -2, flags);
        read_as("read", fd, 5, flags);
        read_as("read here", fd, -1, flags);
        read_as("read past", fd, 1 << 20, flags);
        read_as("read before", fd, -2, flags);
    }
    for (int flags = 0; flags < 32; flags++) {
        write_as("some", end, 7, flags);
        read_as("some", fd, 7, flags);
    }
    struct iovec piece = {text, 4};
    for (int pieces = -1; pieces < 2; pieces++) {
        errno = 0;
        ssize_t written = pwritev2(fd, &piece, pieces, 0, 1 << 20);
        printf("%d pieces: %zd, errno %d\n", pieces, written, errno);
    }

    int direct = open("direct", O_RDWR | O_CREAT | O_DIRECT, 0644);
    CHECK(direct >= 0);
    printf("said: %d\n", (fcntl(direct, F_GETFL) & O_DIRECT) != 0);
    char *page = NULL;
    CHECK(posix_memalign((void **)&page, 4096, 8192) == 0);
    memset(page, 'x', 8192);
    printf("direct: %zd %zd\n", write(direct, page, 8192), pwrite(direct, page, 4096, 4096));
    printf("not aligned: %zd %zd\n", pwrite(direct, page + 1, 100, 33), pread(direct, page, 7, 1));
    CHECK(fcntl(direct, F_SETFL, 0) == 0);
    printf("no more: %d\n", (fcntl(direct, F_GETFL) & O_DIRECT) != 0);
    CHECK(fcntl(direct, F_SETFL, O_DIRECT) == 0);
    printf("again: %d\n", (fcntl(direct, F_GETFL) & O_DIRECT) != 0);
    int copy = dup(direct);
    printf("of a copy: %d\n", (fcntl(copy, F_GETFL) & O_DIRECT) != 0);
    CHECK(fcntl(fd, F_SETFL, O_DIRECT) == 0);
    printf("asked for later: %d\n", (fcntl(fd, F_GETFL) & O_DIRECT) != 0);
    return 0;
}
