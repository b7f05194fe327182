/* Where files have holes: what they take, and where data and holes are. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "told.h"

static char bytes[5 << 20];

static void look(const char *what, int fd) {
    struct stat status, named;
    struct statx more;
    MUST(fstat(fd, &status) == 0 && stat("file", &named) == 0);
    MUST(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &more) == 0);
    printf("%s: %ld bytes, %ld, %ld and %ld blocks;", what, (long)status.st_size,
           (long)status.st_blocks, (long)named.st_blocks, (long)more.stx_blocks);
    off_t at = 0;
    for (int i = 0; i < 20 && (at = lseek(fd, at, SEEK_DATA)) >= 0; i++) {
        printf(" %ld", (long)at);
        at = lseek(fd, at, SEEK_HOLE);
        printf("-%ld", (long)at);
    }
    printf("\n");
    fflush(stdout);
}

static void sought(int fd) {
    static const off_t places[] = {
        0, 1, 4095, 4096, 4097, 100000, (3 << 20) - 1, 3 << 20, (3 << 20) + 1, 10 << 20,
        -1, 0x7fffffffffffffff, (off_t)1 << 63,
    };
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        printf("%ld\n", (long)places[i]);
        TELL(lseek(fd, places[i], SEEK_DATA));
        TELL(lseek(fd, places[i], SEEK_HOLE));
        TELL(lseek(fd, places[i], SEEK_SET));
        TELL(lseek(fd, places[i], SEEK_END));
        TELL(lseek(fd, 5, SEEK_SET));
        TELL(lseek(fd, places[i], SEEK_CUR));
    }
    TELL(lseek(fd, 0, 5));
    TELL(lseek(fd, 0, -1));
}

int main(void) {
    memset(bytes, 'x', sizeof bytes);
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    MUST(fd >= 0);
    look("empty", fd);
    MUST(ftruncate(fd, 100) == 0);
    look("cut to 100", fd);
    MUST(pwrite(fd, "x", 1, 50) == 1);
    look("a byte", fd);
    MUST(ftruncate(fd, 100000) == 0);
    look("cut to 100000", fd);
    MUST(pwrite(fd, bytes, 5000, 50000) == 5000);
    look("5000 bytes", fd);
    MUST(pwrite(fd, bytes, 10, (3 << 20) + 5) == 10);
    look("beyond", fd);
    MUST(pwrite(fd, bytes, sizeof bytes, 1 << 20) == sizeof bytes);
    look("more", fd);
    sought(fd);
    MUST(ftruncate(fd, 1L << 40) == 0);
    look("a tebibyte", fd);
    MUST(pwrite(fd, "x", 1, (1L << 40) - 1) == 1);
    look("its last byte", fd);
    MUST(ftruncate(fd, 60000) == 0);
    look("cut to 60000", fd);
    char *map = mmap(NULL, 60000, PROT_READ, MAP_SHARED, fd, 0);
    MUST(map != MAP_FAILED && map[30000] == 0);
    munmap(map, 60000);
    MUST(ftruncate(fd, 0) == 0);
    look("cut to nothing", fd);
    MUST(write(fd, bytes, 300000) == -1 || 1);
    MUST(pwrite(fd, bytes, 300000, 0) == 300000);
    look("300000 bytes", fd);
    MUST(lseek(fd, 400000, SEEK_SET) == 400000 && write(fd, bytes, 5) == 5);
    look("beyond", fd);
    return 0;
}
