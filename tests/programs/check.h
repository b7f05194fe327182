/* What the test programs share: a check that ends the program with a message. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Written straight to descriptor 2: the streams may be what is being tested. */
#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            char line[512]; \
            int length = snprintf(line, sizeof line, "%s:%d: not so: %s (errno %d, %s)\n", \
                                  __FILE__, __LINE__, #condition, errno, strerror(errno)); \
            if (write(2, line, (size_t)length) < 0) { \
                _exit(3); \
            } \
            _exit(1); \
        } \
    } while (0)

/* That `call` fails with `code`. */
#define FAILS(call, code) \
    do { \
        errno = 0; \
        CHECK((call) == -1 && errno == (code)); \
    } while (0)

/* Goes to the directory that the only argument names; every path is then relative to it. */
static inline void enter(int count, char **arguments) {
    if (count != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", arguments[0]);
        exit(2);
    }
    CHECK(chdir(arguments[1]) == 0);
}

#endif
