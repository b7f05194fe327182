/* Makes a name a program: this one. For those that include `told.h` before. */
#include <fcntl.h>
#include <unistd.h>

static inline void copy_myself(const char *name) {
    static char bytes[1 << 16];
    int from = open("/proc/self/exe", O_RDONLY);
    int to = open(name, O_WRONLY | O_CREAT | O_EXCL, 0755);
    MUST(from >= 0 && to >= 0);
    for (ssize_t count; (count = read(from, bytes, sizeof bytes)) > 0;) {
        MUST(write(to, bytes, count) == count);
    }
    MUST(close(from) == 0 && close(to) == 0);
}
