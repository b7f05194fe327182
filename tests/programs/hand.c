/* Does to files what Rust's library has no function for: `hand exchange A B`, and `hand store NAME
 * AT`, which makes the file as long as it must be and stores what standard input has through a
 * shared map. */
#include <fcntl.h>
#include <sys/mman.h>

#include "check.h"

static void store(const char *name, off_t at) {
    static char bytes[4 << 20];
    size_t length = fread(bytes, 1, sizeof bytes, stdin);
    CHECK(length > 0 && length < sizeof bytes);
    int fd = open(name, O_RDWR | O_CREAT, 0644);
    CHECK(fd >= 0 && ftruncate(fd, at + (off_t)length) == 0);
    off_t from = at & ~(off_t)4095;
    size_t mapped = (size_t)(at - from) + length;
    char *map = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, from);
    CHECK(map != MAP_FAILED && close(fd) == 0);
    memcpy(map + (at - from), bytes, length);
    CHECK(munmap(map, mapped) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 4);
    if (strcmp(arguments[1], "store") == 0) {
        store(arguments[2], atoll(arguments[3]));
    } else {
        /* One of them may not be there. */
        int done = renameat2(AT_FDCWD, arguments[2], AT_FDCWD, arguments[3], RENAME_EXCHANGE);
        CHECK(done == 0 || errno == ENOENT);
    }
    return 0;
}
