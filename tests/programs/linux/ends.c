/* Calls at the ends of what they may be asked: offsets near the last, appending at a shared offset,
   a file copied to itself, names exchanged with none. */
#include <fcntl.h>
#include <stdint.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "told.h"

#define LAST INT64_MAX

static char room[8192];
static struct iovec some = {room, 5}, all[2] = {{room, 5}, {room + 5, 4096}};

static long at(int fd) {
    return lseek(fd, 0, SEEK_CUR);
}

static void size_of(int fd) {
    struct stat status;
    MUST(fstat(fd, &status) == 0);
    printf("size %ld, at %ld\n", (long)status.st_size, at(fd));
}

static void show(const char *name) {
    char text[64] = "";
    int fd = open(name, O_RDONLY);
    ssize_t got = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
    printf("%s: %ld %s\n", name, (long)got, text);
    close(fd);
}

static int made(const char *name, const char *text, int flags) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0644);
    MUST(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    return fd;
}

static void appended(int fd) {
    static const int flags[] = {0, RWF_APPEND, 0x20 /* RWF_NOAPPEND */, RWF_DSYNC};
    static const off_t from[] = {0, 3, 20};
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned j = 0; j < 3; j++) {
            printf("flag %x from %ld\n", flags[i], (long)from[j]);
            MUST(lseek(fd, from[j], SEEK_SET) == from[j]);
            TELL(pwritev2(fd, &some, 1, -1, flags[i]));
            size_of(fd);
            TELL(pwritev2(fd, all, 2, -1, flags[i]));
            size_of(fd);
            TELL(pwritev2(fd, &some, 1, 7, flags[i]));
            size_of(fd);
            TELL(pwritev2(fd, &some, 1, -2, flags[i]));
            TELL(pwritev2(fd, &some, 0, -1, flags[i]));
            TELL(preadv2(fd, all, 2, -1, flags[i] & RWF_DSYNC));
            size_of(fd);
        }
    }
}

/* Where the compiler does not see it. */
static volatile size_t most = SIZE_MAX;

static void far_out(int fd) {
    static const off_t places[] = {LAST, LAST - 1, LAST - 4095, LAST - 4096, LAST - 8192, 1L << 60};
    for (unsigned i = 0; i < sizeof places / sizeof *places; i++) {
        off_t place = places[i];
        printf("place %lx\n", (long)place);
        TELL(lseek(fd, place, SEEK_SET) == place);
        TELL(read(fd, room, 1));
        TELL(read(fd, room, 4096));
        TELL(read(fd, room, 0));
        TELL(readv(fd, all, 2));
        TELL(preadv2(fd, all, 2, -1, 0));
        TELL(pread(fd, room, 1, place));
        TELL(pread(fd, room, 4096, place));
        TELL(preadv(fd, all, 2, place));
        if (place > LAST - 4096) {
            TELL(write(fd, room, 4096));
            TELL(pwrite(fd, room, 4096, place));
        }
        TELL(write(fd, room, 0));
        TELL(pwrite(fd, room, 0, place));
        TELL(lseek(fd, 1, SEEK_CUR) == place + 1);
        TELL(lseek(fd, 0, SEEK_SET));
        size_of(fd);
    }
    TELL(read(fd, room, most));
    TELL(pread(fd, room, most, 0));
    TELL(lseek(fd, LAST, SEEK_END));
    TELL(lseek(fd, -LAST, SEEK_CUR));
}

/* Parts that overlap elsewhere than at one and the same place are copied as the processor likes. */
static void to_itself(int flags) {
    static const off_t from[] = {0, 2, 6, 10, 11};
    for (unsigned i = 0; i < sizeof from / sizeof *from; i++) {
        for (size_t count = 0; count < 14; count += 3) {
            int fd = made("self", "0123456789", flags), other = open("self", O_WRONLY);
            off_t start = from[i];
            printf("self from %ld, %lu\n", (long)start, count);
            if (start + (off_t)count <= 10) {
                TELL(sendfile(fd, fd, &start, count));
            }
            printf("start %ld\n", (long)start);
            size_of(fd);
            show("self");
            MUST(lseek(fd, from[i], SEEK_SET) == from[i]);
            TELL(sendfile(fd, fd, NULL, count));
            size_of(fd);
            show("self");
            int copy = dup(fd);
            MUST(copy >= 0 && lseek(fd, 1, SEEK_SET) == 1);
            TELL(sendfile(fd, copy, NULL, count));
            size_of(copy);
            close(copy);
            MUST(lseek(other, 30, SEEK_SET) == 30 && lseek(fd, 0, SEEK_SET) == 0);
            TELL(sendfile(other, fd, NULL, count));
            size_of(fd);
            size_of(other);
            show("self");
            TELL(sendfile(fd, other, NULL, count));
            close(other);
            close(fd);
        }
    }
}

static void exchanged(const char *one, const char *other) {
    printf("%s and %s\n", one, other);
    TELL(renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE));
}

int main(void) {
    for (unsigned i = 0; i < sizeof room; i++) {
        room[i] = (char)('a' + i % 26);
    }
    int fd = made("plain", "0123456789", 0), appends = made("appends", "0123456789", O_APPEND);
    appended(fd);
    appended(appends);
    close(appends);
    close(fd);
    show("plain");
    fd = made("far", "0123456789", 0);
    far_out(fd);
    close(fd);
    to_itself(0);
    to_itself(O_APPEND);
    MUST(mkdir("directory", 0755) == 0 && mkdir("directory/below", 0755) == 0);
    MUST(symlink("nothing", "dangling") == 0);
    static const char *const names[] = {
        "far", "missing", "directory", "directory/below", "directory/missing", "missing/below",
        "far/below", "missing/", "far/", "directory/", "dangling", ".", "", "directory/..",
    };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        for (unsigned j = 0; j < sizeof names / sizeof *names; j++) {
            exchanged(names[i], names[j]);
            /* Back, where it was done. */
            exchanged(names[i], names[j]);
        }
    }
    return 0;
}
