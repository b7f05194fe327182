/* Where a program is, written by libc into a file of the program's: the same lines as
   `backtrace_symbols` has, behind what is there. */
#include <execinfo.h>
#include <fcntl.h>
#include <unistd.h>

#include "told.h"

static void *frames[8];
static int count;

/* Whether the file `name` has `begin`, and then these lines `times` times. */
static int has(const char *name, const char *begin, int times) {
    static char expected[16384], found[16384];
    char **lines = backtrace_symbols(frames, count);
    size_t length = (size_t)sprintf(expected, "%s", begin);
    for (int i = 0; i < times * count; i++) {
        /* Here it has a space more. */
        const char *line = lines[i % count], *space = strrchr(line, ' ');
        MUST(space != NULL);
        length += (size_t)sprintf(expected + length, "%.*s%s\n", (int)(space - line), line,
                                  space + 1);
    }
    free(lines);
    int fd = open(name, O_RDONLY);
    ssize_t got = read(fd, found, sizeof found);
    close(fd);
    return got == (ssize_t)length && memcmp(expected, found, length) == 0;
}

int main(void) {
    count = backtrace(frames, 8);
    TELL(count > 1);
    int fd = open("trace", O_RDWR | O_CREAT, 0600);
    MUST(write(fd, "at\n", 3) == 3);
    backtrace_symbols_fd(frames, count, fd);
    TELL(has("trace", "at\n", 1));
    backtrace_symbols_fd(frames, count, fd);
    TELL(has("trace", "at\n", 2));
    TELL(lseek(fd, 0, SEEK_CUR) == lseek(fd, 0, SEEK_END));
    backtrace_symbols_fd(frames, 0, fd);
    TELL(has("trace", "at\n", 2));
    MUST(close(fd) == 0 && truncate("trace", 0) == 0);
    fd = open("trace", O_WRONLY | O_APPEND);
    backtrace_symbols_fd(frames, count, fd);
    MUST(lseek(fd, 0, SEEK_SET) == 0);
    backtrace_symbols_fd(frames, count, fd);
    TELL(has("trace", "", 2));
    close(fd);
    /* Nothing can be written there, and nobody is told. */
    fd = open("trace", O_RDONLY);
    backtrace_symbols_fd(frames, count, fd);
    close(fd);
    backtrace_symbols_fd(frames, count, fd);
    TELL(has("trace", "", 2));
    /* Addresses are others in each process. */
    return unlink("trace");
}
