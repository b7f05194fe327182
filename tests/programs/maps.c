/* Memory maps: the same answers from any POSIX directory. Sizes are such that a file has several
 * chunks of 2 MiB, and ends within one. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"

enum { MIB = 1 << 20, SIZE = 5 * MIB + 1234, PAGE = 4096 };

static unsigned char *content;

static int opened(const char *name, int flags) {
    int fd = open(name, flags, 0644);
    CHECK(fd >= 0);
    return fd;
}

static int filled(const char *name) {
    int fd = opened(name, O_RDWR | O_CREAT | O_TRUNC);
    CHECK(write(fd, content, SIZE) == SIZE);
    return fd;
}

static unsigned char *mapped(int fd, size_t length, int protection, int flags, off_t at) {
    unsigned char *map = mmap(NULL, length, protection, flags, fd, at);
    CHECK(map != MAP_FAILED);
    return map;
}

static int same(const unsigned char *map, off_t at, size_t length) {
    return memcmp(map, content + at, length) == 0;
}

/* What others write is seen at once through a shared map, from each of its pages. */
static void shared(void) {
    int fd = filled("shared"), reader = opened("shared", O_RDONLY);
    unsigned char *map = mapped(reader, SIZE, PROT_READ, MAP_SHARED, 0);
    unsigned char *part = mapped(reader, 3 * MIB, PROT_READ, MAP_SHARED, MIB + PAGE);
    CHECK(same(map, 0, SIZE) && same(part, MIB + PAGE, 3 * MIB));
    for (int i = SIZE; i % PAGE != 0; i++) {
        CHECK(map[i] == 0);
    }
    pid_t writer = fork();
    if (writer == 0) {
        for (off_t at = 7; at < SIZE; at += 300 * 1000) {
            CHECK(pwrite(fd, "new", 3, at) == 3);
        }
        _exit(0);
    }
    int status;
    CHECK(waitpid(writer, &status, 0) == writer && status == 0);
    for (off_t at = 7; at + 3 < SIZE; at += 300 * 1000) {
        CHECK(memcmp(map + at, "new", 3) == 0);
        off_t there = at - MIB - PAGE;
        CHECK(there < 0 || there > 3 * MIB - 3 || memcmp(part + there, "new", 3) == 0);
    }
    /* The map outlives the descriptors and the name. */
    CHECK(close(fd) == 0 && close(reader) == 0 && unlink("shared") == 0);
    CHECK(memcmp(map + 7, "new", 3) == 0 && same(map + PAGE, PAGE, 1000));
    CHECK(munmap(map, SIZE) == 0 && same(part + 2 * MIB + 1, 3 * MIB + PAGE + 1, 1000));
    CHECK(munmap(part, 3 * MIB) == 0);
}

/* What is stored through a map is the file's: for read, for other maps, and in the end. */
static void stored(void) {
    int fd = filled("stored");
    int access = PROT_READ | PROT_WRITE;
    unsigned char *map = mapped(fd, SIZE, access, MAP_SHARED, 0);
    unsigned char *other = mapped(fd, 2 * MIB, PROT_READ, MAP_SHARED, 2 * MIB);
    unsigned char got[8];
    memcpy(map + 3 * MIB, "by store", 8);
    CHECK(memcmp(other + MIB, "by store", 8) == 0);
    CHECK(pread(fd, got, 8, 3 * MIB) == 8 && memcmp(got, "by store", 8) == 0);
    CHECK(pwrite(fd, "by write", 8, 3 * MIB) == 8 && memcmp(map + 3 * MIB, "by write", 8) == 0);
    CHECK(msync(map, SIZE, MS_SYNC) == 0 && msync(map, SIZE, MS_ASYNC) == 0);
    /* A child inherits the map, and its stores are seen here. */
    pid_t child = fork();
    if (child == 0) {
        CHECK(close(fd) == 0);
        map[SIZE - 1] = 'Z';
        CHECK(munmap(map, 4 * MIB) == 0);
        memcpy(map + 4 * MIB + 5, "child", 5);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(map[SIZE - 1] == 'Z' && memcmp(map + 4 * MIB + 5, "child", 5) == 0);
    CHECK(munmap(map, 2 * MIB) == 0);
    CHECK(close(fd) == 0);
    map[2 * MIB] = 'Q';
    CHECK(other[0] == 'Q' && munmap(map + 2 * MIB, SIZE - 2 * MIB) == 0);
    CHECK(munmap(other, 2 * MIB) == 0);
}

/* A file that is made long and then filled through a map alone, holes left where nothing is. */
static void made(void) {
    int fd = opened("made", O_RDWR | O_CREAT | O_TRUNC);
    CHECK(ftruncate(fd, SIZE) == 0);
    unsigned char *map = mapped(fd, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    for (int i = 0; i < SIZE; i += 7001) {
        CHECK(map[i] == 0);
    }
    CHECK(close(fd) == 0);
    memcpy(map + MIB, content, 3 * MIB);
    CHECK(munmap(map, SIZE) == 0);
    fd = opened("made", O_RDONLY);
    static unsigned char got[SIZE];
    CHECK(read(fd, got, SIZE) == SIZE && same(got + MIB, 0, 3 * MIB));
    CHECK(got[0] == 0 && got[MIB - 1] == 0 && got[4 * MIB] == 0 && got[SIZE - 1] == 0);
    CHECK(close(fd) == 0);
}

/* A map may be longer than the file, and shows what is written there later. */
static void grown(void) {
    int fd = opened("grown", O_RDWR | O_CREAT | O_TRUNC);
    CHECK(write(fd, "begin", 5) == 5);
    unsigned char *map = mapped(fd, 6 * MIB, PROT_READ, MAP_SHARED, 0);
    CHECK(memcmp(map, "begin", 5) == 0 && map[5] == 0);
    for (off_t at = PAGE; at < 6 * MIB; at += 900 * 1000) {
        CHECK(pwrite(fd, "more", 4, at) == 4 && memcmp(map + at, "more", 4) == 0);
    }
    CHECK(munmap(map, 6 * MIB) == 0 && close(fd) == 0);
}

/* A private map is its process's own, however it is used. */
static void private(void) {
    int fd = filled("private");
    size_t sizes[] = {100, 64 * 1024, SIZE};
    for (int i = 0; i < 3; i++) {
        size_t size = sizes[i];
        unsigned char *map = mapped(fd, size, PROT_READ, MAP_PRIVATE, 0);
        CHECK(same(map, 0, size));
        CHECK(mprotect(map, size, PROT_READ | PROT_WRITE) == 0);
        memset(map, 'x', size);
        unsigned char got[100];
        CHECK(pread(fd, got, 100, 0) == 100 && same(got, 0, 100));
        unsigned char *again = mapped(fd, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0);
        CHECK(same(again, 0, size) && map[size - 1] == 'x');
        CHECK(munmap(map, size) == 0 && munmap(again, size) == 0);
    }
    CHECK(close(fd) == 0);
}

/* Places, advice, and the calls that change a map. */
static void changed(void) {
    int fd = filled("changed");
    unsigned char *place = mapped(-1, 8 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
    unsigned char *map = mmap(place + MIB, 4 * MIB, PROT_READ, MAP_SHARED | MAP_FIXED, fd, PAGE);
    CHECK(map == place + MIB && same(map, PAGE, 4 * MIB));
    CHECK(mmap(map, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) == MAP_FAILED &&
          errno == EEXIST);
    CHECK(madvise(map, 4 * MIB, MADV_SEQUENTIAL) == 0 && madvise(map, MIB, MADV_WILLNEED) == 0);
    CHECK(madvise(map, 4 * MIB, MADV_DONTNEED) == 0 && same(map, PAGE, 4 * MIB));
    unsigned char *moved = mremap(map + 2 * MIB, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    CHECK(moved == place && same(moved, PAGE + 2 * MIB, PAGE));
    CHECK(mremap(map, MIB, MIB / 2, 0) == map && same(map, PAGE, MIB / 2));
    CHECK(mprotect(map, PAGE, PROT_NONE) == 0 && mprotect(map, PAGE, PROT_READ) == 0);
    CHECK(same(map, PAGE, PAGE) && munmap(place, 8 * MIB) == 0);
    map = mapped(fd, SIZE, PROT_READ, MAP_SHARED | MAP_POPULATE, 0);
    CHECK(same(map, 0, SIZE) && munmap(map, SIZE) == 0);
    /* Memory that is no map of a file grows as ever. */
    place = mapped(-1, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
    place[5] = 'a';
    place = mremap(place, MIB, 3 * MIB, MREMAP_MAYMOVE);
    CHECK(place != MAP_FAILED && place[5] == 'a' && munmap(place, 3 * MIB) == 0);
    CHECK(close(fd) == 0);
}

static void refused(void) {
    int fd = filled("refused"), reader = opened("refused", O_RDONLY);
    int writer = opened("refused", O_WRONLY), path = opened("refused", O_PATH);
    int directory = opened(".", O_RDONLY), access = PROT_READ | PROT_WRITE;
    CHECK(mmap(NULL, PAGE, access, MAP_SHARED, reader, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, writer, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(NULL, PAGE, access, MAP_SHARED, writer, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, writer, 0) == MAP_FAILED && errno == EACCES);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, path, 0) == MAP_FAILED && errno == EBADF);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, directory, 0) == MAP_FAILED && errno == ENODEV);
    CHECK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 100) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, PAGE, PROT_READ, 0, fd, 0) == MAP_FAILED && errno == EINVAL);
    unsigned char *map = mapped(reader, PAGE, PROT_READ, MAP_SHARED, 0);
    FAILS(mprotect(map, PAGE, access), EACCES);
    CHECK(munmap(map, PAGE) == 0);
    CHECK(close(fd) + close(reader) + close(writer) + close(path) + close(directory) == 0);
}

int main(int count, char **arguments) {
    enter(count, arguments);
    content = malloc(SIZE);
    for (int i = 0; i < SIZE; i++) {
        content[i] = (unsigned char)(i * 31 + i / 251);
    }
    shared();
    stored();
    made();
    grown();
    private();
    changed();
    refused();
    puts("maps as they should be");
    return 0;
}
