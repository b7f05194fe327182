/* Says what calls answer, so that two file systems can be compared line by line. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void told(const char *call, long answer) {
    int number = errno;
    printf("%s: %ld %s\n", call, answer, answer == -1 ? strerrorname_np(number) : "");
    fflush(stdout);
    errno = 0;
}
#define TELL(call) (errno = 0, told(#call, (long)(call)))
#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %m\n", __FILE__, __LINE__, #condition);                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
