/* A map of a file is never one of another, and what cannot be served is refused. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "told.h"

int main(void) {
    const char *names[] = {"one", "two"};
    char *maps[2];
    size_t length = 4 << 20;
    for (int i = 0; i < 2; i++) {
        int fd = open(names[i], O_RDWR | O_CREAT, 0644);
        MUST(fd >= 0);
        for (size_t at = 0; at < length; at += 4096) {
            MUST(pwrite(fd, names[i], 3, (off_t)at) == 3);
        }
        maps[i] = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        MUST(maps[i] != MAP_FAILED && close(fd) == 0);
    }
    for (int i = 0; i < 2; i++) {
        for (size_t page = 0; page < 512; page += 100) {
            MUST(remap_file_pages(maps[i], 4096, 0, page, 0) == -1 && errno == EINVAL);
            MUST(remap_file_pages(maps[i] + length / 2, 4096, 0, page, 0) == -1 && errno == EINVAL);
        }
        for (size_t at = 0; at < length; at += 4096) {
            MUST(memcmp(maps[i] + at, names[i], 3) == 0);
        }
    }
    /* Other maps are as ever. */
    char *plain = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(plain != MAP_FAILED);
    plain[4096] = 'x';
    MUST(remap_file_pages(plain, 4096, 0, 1, 0) == 0 && plain[0] == 'x');
    puts("refused");
    return 0;
}
