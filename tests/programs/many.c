/* Very many files in a directory: makes them, lists them, looks at some, and removes all but every
 * thousandth; fails if the second half of it takes over three times as long as the first. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "check.h"

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static const char *name_of(long number) {
    static char name[32];
    snprintf(name, sizeof name, "f%08ld", number);
    return name;
}

static void make(long number) {
    int fd = open(name_of(number), O_CREAT | O_EXCL | O_WRONLY, 0644);
    CHECK(fd >= 0 && write(fd, name_of(number), 9) == 9 && close(fd) == 0);
}

static void drop(long number) {
    CHECK(number % 1000 == 0 || unlink(name_of(number)) == 0);
}

/* In two halves. The first is quicker where the server, and the drain beside it, come after; but
   whatever takes longer the more files there are takes more than a tenth of a millisecond each. */
static void twice(const char *what, void (*each)(long), long count) {
    double begin = seconds();
    for (long number = 0; number < count / 2; number++) {
        each(number);
    }
    double middle = seconds();
    for (long number = count / 2; number < count; number++) {
        each(number);
    }
    double first = middle - begin, second = seconds() - middle;
    fprintf(stderr, "%s: %.2f s, %.2f s\n", what, first, second);
    CHECK(second < 3 * first + 1 + (double)count / 2 * 1e-4);
}

static long listed(void) {
    DIR *directory = opendir(".");
    CHECK(directory != NULL);
    long count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        count += entry->d_name[0] == 'f';
    }
    CHECK(closedir(directory) == 0);
    return count;
}

static void look(long count) {
    struct stat status;
    for (int i = 0; i < 10000; i++) {
        CHECK(stat(name_of(random() % count), &status) == 0 && status.st_size == 9);
    }
    CHECK(stat(name_of(count), &status) == -1 && errno == ENOENT);
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    long files = atol(arguments[2]);
    enter(2, arguments);
    twice("make", make, files);
    double begin = seconds();
    CHECK(listed() == files);
    fprintf(stderr, "list: %.2f s\n", seconds() - begin);
    look(files);
    twice("remove", drop, files);
    CHECK(listed() == (files + 999) / 1000);
    return 0;
}
