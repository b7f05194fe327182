/* Random numbers, paths and the line of the operation that runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "differential.h"

struct world world;

static uint64_t state;
static char *line;
static const char *enabled = "";

void draw_from(uint64_t seed, uint64_t number) {
    state = seed * 0x9e3779b97f4a7c15u + number * 0xd1342543de82ef95u + 1;
    draw(2);
}

uint32_t draw(uint32_t below) {
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32) % below;
}

int chance(int percent) {
    return draw(100) < (uint32_t)percent;
}

void set_features(const char *list) {
    enabled = list;
}

int feature(const char *name) {
    size_t length = strlen(name);
    for (const char *at = enabled; (at = strstr(at, name)) != NULL; at += length) {
        int starts = at == enabled || at[-1] == ',';
        if (starts && (at[length] == 0 || at[length] == ',')) {
            return 1;
        }
    }
    return 0;
}

void line_start(char *memory) {
    line = memory;
    line[0] = 0;
}

void say(const char *format, ...) {
    size_t used = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, LINE - used, format, arguments);
    va_end(arguments);
}

void result(long long value) {
    if (value == -1) {
        const char *name = strerrorname_np(errno);
        say(" = -1 %s", name ? name : "?");
    } else {
        say(" = %lld", value);
    }
}

uint64_t hash(uint64_t seed, const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    uint64_t sum = seed ^ 0xcbf29ce484222325u;
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, 8);
        sum = (sum ^ word) * 0x9fb21c651e98df25u;
        sum ^= sum >> 32;
    }
    for (; i < count; i++) {
        sum = (sum ^ at[i]) * 0x100000001b3u;
    }
    return sum ^ (sum >> 29);
}

/* Length, hash and the first bytes; zeros in short, as sparse files are full of them. */
void say_bytes(const void *bytes, size_t count) {
    const unsigned char *at = bytes;
    size_t zeros = 0;
    while (zeros < count && at[zeros] == 0) {
        zeros++;
    }
    say(" [%zu zeros=%zu %08x", count, zeros, (unsigned)hash(0, bytes, count));
    for (size_t i = zeros; i < count && i < zeros + 6; i++) {
        say(" %02x", at[i]);
    }
    say("]");
}

static void say_time(const char *name, const struct timespec *time) {
    if (time->tv_sec < 1500000000) {
        say(" %s=%lld.%ld", name, (long long)time->tv_sec, time->tv_nsec);
    } else {
        say(" %s=now", name);
    }
}

/* What must agree: not inode numbers, not a directory's size and links, not a
 * symbolic link's size, as it may say where the root is, not times but those set. */
void say_status(const struct stat *status) {
    say(" {%o", status->st_mode);
    if (!S_ISDIR(status->st_mode)) {
        say(" links=%d", (int)status->st_nlink);
    }
    if (!S_ISDIR(status->st_mode) && !S_ISLNK(status->st_mode)) {
        say(" size=%lld", (long long)status->st_size);
    }
    say_time("m", &status->st_mtim);
    int link = S_ISLNK(status->st_mode);
    if (feature("atime") && !S_ISDIR(status->st_mode) && (!link || feature("link_reads"))) {
        say_time("a", &status->st_atim);
    }
    say(" own=%d}", status->st_uid == geteuid() && status->st_gid == getegid());
}

void find_depth(void) {
    char here[8192];
    if (getcwd(here, sizeof here) == NULL) {
        world.depth = 0;
        if (!feature("removed_directory") && chdir(world.root) != 0) {
            say(" lost");
        }
        return;
    }
    size_t length = strlen(world.root);
    int below = strncmp(here, world.root, length) == 0;
    world.depth = 0;
    for (const char *at = here + length; below && *at != 0; at++) {
        world.depth += *at == '/';
    }
}

/* What is beside the root is told from its parent on. */
void say_path(const char *path) {
    const char *slash = strrchr(world.root, '/');
    size_t above = (size_t)(slash - world.root), length = strlen(world.root);
    int beside = above > 0 && strncmp(path, world.root, above) == 0;
    int below = strncmp(path, world.root, length) == 0;
    const char *rest = path + (below ? length : beside ? above : 0);
    say(" %s%.60s", below ? "@" : beside ? "^" : "", rest);
    if (strlen(rest) > 60) {
        say("...(%zu)", strlen(rest));
    }
}

static void component(char *path, size_t room, char kind) {
    size_t used = strlen(path);
    snprintf(path + used, room - used, "%c%u", kind, draw(3));
}

static const char *long_name(char *path, size_t room) {
    size_t length = 254 + draw(3);
    size_t used = strlen(path);
    if (used + length + 1 < room) {
        memset(path + used, 'n', length);
        path[used + length] = 0;
    }
    return path;
}

/* Between the start and the last component: directories and what is neutral between slashes. */
static int middle(char *path, size_t room) {
    static const char *const neutral[] = {"./", "/", ".//./"};
    int depth = chance(65) ? 0 : 1 + (int)draw(2);
    for (int more = depth; more > 0; more--) {
        component(path, room, chance(80) ? 'd' : chance(85) ? 'm' : 'f');
        if (feature("symlinks") && chance(15)) {
            path[strlen(path) - 2] = 's';
        }
        strcat(path, "/");
        if (chance(6)) {
            strcat(path, ONE_OF(neutral));
        }
        if (feature("dotdot") && chance(6)) {
            strcat(path, "../");
        }
    }
    return depth;
}

static const char *path_of(int directory, int plain) {
    static char path[8192];
    path[0] = 0;
    uint32_t start = draw(100);
    if (start < 15) {
        snprintf(path, sizeof path, "%s/", world.root);
    } else if (start < 20 && world.depth > 0) {
        strcpy(path, "../");
    }
    if (chance(1) && chance(50) && !plain) {
        for (int i = 0; i < 2100; i++) {
            strcat(path, "./");
        }
    }
    int depth = middle(path, sizeof path);
    int ordered = depth > 0 && !feature("errno_order");
    uint32_t last = draw(100);
    if (last < 2 && !plain && !ordered) {
        long_name(path, sizeof path);
    } else if (last < 3 && !plain) {
        strcat(path, ".");
    } else {
        const char *kinds = directory ? "dmmmddmmfs" : "fffffgffds";
        char kind = kinds[draw(10)];
        component(path, sizeof path, kind == 's' && !feature("symlinks") ? 'f' : kind);
    }
    if (chance(directory ? 8 : 3) && !plain) {
        strcat(path, chance(80) ? "/" : "//");
    }
    if (chance(1) && chance(20) && !plain) {
        path[0] = 0;
    }
    say_path(path);
    return path;
}

const char *some_path(int directory) {
    return path_of(directory, 0);
}

const char *some_plain_path(int directory) {
    return path_of(directory, !feature("errno_order"));
}

const char *some_home(void) {
    static char path[2048];
    strcpy(path, world.depth > 0 && chance(40) && chance(60) ? ".." : world.root);
    for (int more = (int)draw(3); more > 0; more--) {
        strcat(path, "/");
        component(path, sizeof path, 'd');
    }
    say_path(path);
    return path;
}

int some_base(void) {
    if (chance(65)) {
        return AT_FDCWD;
    }
    uint32_t which = draw(DIRECTORIES);
    struct stat status;
    if (fstat(world.directory[which], &status) != 0 ||
        (status.st_nlink == 0 && !feature("removed_directory"))) {
        return AT_FDCWD;
    }
    say(" D%u:", which);
    return world.directory[which];
}

int may_go(const char *path) {
    if (feature("moved")) {
        return 1;
    }
    size_t end = strlen(path);
    while (end > 0 && path[end - 1] == '/') {
        end--;
    }
    size_t start = end;
    while (start > 0 && path[start - 1] != '/') {
        start--;
    }
    if (path[start] == 'd' || path[start] == '.' || end == 0) {
        say(" stays");
        return 0;
    }
    return 1;
}

int truncates_empty(int base, const char *path) {
    struct stat status;
    return !feature("truncate_empty") && fstatat(base, path, &status, 0) == 0 &&
           status.st_size == 0;
}

int waits(int base, const char *path) {
    struct stat status;
    int fifo = fstatat(base, path, &status, 0) == 0 && S_ISFIFO(status.st_mode);
    if (fifo) {
        say(" waits");
    }
    return fifo;
}

int *some_slot(void) {
    uint32_t which = draw(SLOTS);
    say(" S%u", which);
    return &world.slot[which];
}

/* Mostly one that is open. */
int open_slot(void) {
    uint32_t which = draw(SLOTS);
    int closed_too = chance(10);
    for (int i = 0; i < SLOTS && !closed_too && world.slot[which] < 0; i++) {
        which = (which + 1) % SLOTS;
    }
    say(" S%u", which);
    return world.slot[which];
}

void fill(char *bytes, size_t count) {
    uint32_t start = draw(1u << 30);
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (char)(1 + (start + i * 7 + i / 251) % 255);
    }
}

size_t some_length(void) {
    static const size_t edges[] = {0, 1, 4095, 4096, 4097, 8192, 12288, 65536, 65537, 300000};
    return chance(75) ? 1 + draw(200) : chance(60) ? draw(9000) : ONE_OF(edges);
}

off_t some_offset(void) {
    static const off_t edges[] = {0, 4095, 4096, 8191, (2 << 20) - 5, 2 << 20, (2 << 20) + 4096};
    return chance(60) ? draw(400) : chance(80) ? draw(20000) : ONE_OF(edges);
}
