/* Which times of a file move with which call. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "told.h"

static struct stat before;
static int fd;

static long later(struct timespec one, struct timespec other) {
    return one.tv_sec != other.tv_sec ? one.tv_sec - other.tv_sec : one.tv_nsec - other.tv_nsec;
}

static const char *word(long difference) {
    return difference > 0 ? "later" : difference < 0 ? "earlier" : "-";
}

static void settle(void) {
    struct timespec moment = {0, 20000000};
    nanosleep(&moment, NULL);
    MUST(stat("file", &before) == 0);
}

static void look(const char *what) {
    struct stat now, name;
    MUST(fstat(fd, &now) == 0 && stat("file", &name) == 0);
    long modified = later(now.st_mtim, before.st_mtim);
    long changed = later(now.st_ctim, before.st_ctim);
    MUST(later(now.st_ctim, name.st_ctim) == 0 && later(now.st_mtim, name.st_mtim) == 0);
    printf("%s: modified %s, changed %s\n", what, word(modified), word(changed));
    settle();
}
#define LOOK(call)                                                                                 \
    do {                                                                                           \
        TELL(call);                                                                                \
        look(#call);                                                                               \
    } while (0)

int main(void) {
    char text[8];
    struct iovec vector[] = {{"one", 3}, {"two", 3}};
    const struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
    fd = open("file", O_RDWR | O_CREAT, 0644);
    int other = open("other", O_RDWR | O_CREAT | O_APPEND, 0644);
    MUST(fd >= 0 && other >= 0 && write(other, "other", 5) == 5);
    settle();
    LOOK(write(fd, "some", 4));
    LOOK(pwrite(fd, "some", 4, 1 << 20));
    LOOK(pwrite(fd, "over", 4, 2));
    LOOK(writev(fd, vector, 2));
    LOOK(write(fd, "", 0));
    LOOK(read(fd, text, 4));
    LOOK(ftruncate(fd, 100));
    LOOK(ftruncate(fd, 100));
    LOOK(truncate("file", 50));
    LOOK(truncate("file", 5000));
    LOOK(fallocate(fd, 0, 0, 10000));
    LOOK(fallocate(fd, 0, 0, 10000));
    LOOK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
    LOOK(sendfile(fd, other, &(off_t){0}, 5));
    LOOK(copy_file_range(other, &(loff_t){0}, fd, NULL, 5, 0));
    LOOK(futimens(fd, old));
    LOOK(write(fd, "x", 1));
    LOOK(fchmod(fd, 0600));
    LOOK(setxattr("file", "user.x", "y", 1, 0));
    LOOK(link("file", "name"));
    LOOK(rename("name", "renamed"));
    LOOK(unlink("renamed"));
    LOOK(close(open("file", O_WRONLY | O_TRUNC)));
    LOOK(close(open("file", O_WRONLY | O_TRUNC)));
    LOOK(close(open("file", O_RDWR)));
    MUST(write(fd, "last", 4) == 4 && close(fd) == 0);
    settle();
    /* What is closed and brought to a quieter place keeps its times. */
    sleep(3);
    fd = open("file", O_RDWR);
    look("later");
    MUST(system("touch mark; sleep 0.05; echo more >> file; find . -cnewer mark -type f") == 0);
    return 0;
}
