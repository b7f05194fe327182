/* What becomes of maps that are given away, moved, or asked for in odd ways. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "told.h"

enum { PAGE = 4096 };

static unsigned sum(const unsigned char *bytes, size_t count) {
    unsigned all = 0;
    for (size_t i = 0; i < count; i++) {
        all = all * 31 + bytes[i];
    }
    return all;
}

/* A page that was changed and given away shows the file again. */
static void given_away(int fd, size_t length, off_t offset, int protection) {
    unsigned char *map = mmap(NULL, length, protection, MAP_PRIVATE, fd, offset);
    MUST(map != MAP_FAILED);
    printf("%zu bytes at %ld: %x\n", length, (long)offset, sum(map, length));
    memset(map, 'x', length);
    printf("changed: %x\n", sum(map, length));
    TELL(madvise(map, length, MADV_DONTNEED));
    printf("given away: %x\n", sum(map, length));
    map[0] = 'y';
    TELL(madvise(map, PAGE, MADV_DONTNEED));
    printf("the first page: %x\n", sum(map, length));
    TELL(munmap(map, length));
}

int main(void) {
    int fd = open("file", O_RDWR | O_CREAT, 0644);
    static unsigned char bytes[3 << 20];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(i * 7 + i / 4096);
    }
    MUST(write(fd, bytes, sizeof bytes - 100) == sizeof bytes - 100);
    const int write_it = PROT_READ | PROT_WRITE;
    given_away(fd, PAGE, 0, write_it);
    given_away(fd, 60000, 8 * PAGE, write_it);
    given_away(fd, 64 << 10, 0, write_it | PROT_EXEC);
    given_away(fd, 1 << 20, PAGE, write_it | PROT_EXEC);
    given_away(fd, 3 << 20, 0, write_it);
    given_away(fd, PAGE, (3 << 20) - PAGE, write_it);
    TELL((long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0));
    TELL((long)mmap(NULL, PAGE, PROT_READ, 0, fd, 0));
    TELL((long)mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0));
    TELL((long)mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 1));
    TELL((long)mmap((void *)1, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0));
    TELL((long)mmap(NULL, PAGE, 0x40, MAP_SHARED_VALIDATE | MAP_PRIVATE, fd, 0) == -1);
    return 0;
}
