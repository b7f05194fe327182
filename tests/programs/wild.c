/* A program that goes wild: writes files, then garbage into all that it shares with the server, and
 * ends, or is killed. wild SEED MICROSECONDS */
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static uint64_t seed;

static uint64_t next(void) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 11;
}

static uint64_t garbage(void) {
    switch (next() % 6) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return next() % 100;
    case 3:
        return 1ull << next() % 64;
    default:
        return next() << 11 ^ next();
    }
}

/* Parts of a file in memory that are there: pairs of begin and end. */
static size_t parts(int fd, off_t (*found)[2], size_t most) {
    size_t count = 0;
    for (off_t at = 0; count < most && (at = lseek(fd, at, SEEK_DATA)) >= 0; count++) {
        found[count][0] = at;
        at = found[count][1] = lseek(fd, at, SEEK_HOLE);
    }
    return count;
}

struct region {
    uint64_t *words;
    off_t parts[64][2];
    size_t count;
};

static int map(struct region *region, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("TERRAL_INSTANCE"), name);
    int fd = open(path, O_RDWR);
    struct stat found;
    if (fd < 0 || fstat(fd, &found) != 0)
        return 0;
    region->words = mmap(NULL, found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    region->count = parts(fd, region->parts, 64);
    close(fd);
    return region->words != MAP_FAILED && region->count > 0;
}

static void write_file(const char *name, int value) {
    char path[4096], bytes[70000];
    snprintf(path, sizeof path, "%s/%s", getenv("TERRAL_DIR"), name);
    memset(bytes, value, sizeof bytes);
    int fd = open(path, O_CREAT | O_WRONLY, 0644);
    for (int i = 0; fd >= 0 && i < 20; i++)
        if (write(fd, bytes, sizeof bytes) < 0)
            break;
    close(fd);
}

static int64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000ll + now.tv_nsec / 1000;
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    seed = strtoull(arguments[1], NULL, 0);
    write_file("wild-1", 1);
    write_file("wild-2", 2);
    static struct region regions[3];
    int known = map(&regions[0], "headers") + map(&regions[1], "pages");
    CHECK(known == 2);
    map(&regions[2], "session-0");
    int64_t end = now_us() + atoll(arguments[2]);
    while (now_us() < end) {
        struct region *region = &regions[next() % 3];
        if (region->count == 0)
            continue;
        off_t *part = region->parts[next() % region->count];
        for (int burst = 1 << next() % 8; burst > 0; burst--) {
            off_t at = part[0] + (off_t)(next() % (uint64_t)(part[1] - part[0]));
            region->words[at / 8] = garbage();
        }
    }
    /* What it can still do is its own affair: it has gone wild. */
    raise(SIGKILL);
    return 0;
}
