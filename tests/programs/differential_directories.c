/* Directories' contents, the working directory and what walks over names. */
#define _GNU_SOURCE
#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "differential.h"

enum { MOST_NAMES = 2000 };

struct listing {
    char *names[MOST_NAMES];
    int count;
};

static int by_name(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void take(struct listing *into, const struct dirent *entry) {
    char name[300];
    snprintf(name, sizeof name, "%s:%d", entry->d_name, entry->d_type);
    if (into->count < MOST_NAMES) {
        into->names[into->count++] = strdup(name);
    }
}

static void say_listing(struct listing *listing) {
    qsort(listing->names, (size_t)listing->count, sizeof *listing->names, by_name);
    uint64_t sum = 0;
    for (int i = 0; i < listing->count; i++) {
        sum = hash(sum, listing->names[i], strlen(listing->names[i]));
        if (i < 40) {
            say(" %.40s", listing->names[i]);
        }
        free(listing->names[i]);
    }
    say(" [%d %08x]", listing->count, (unsigned)sum);
    listing->count = 0;
}

static DIR *some_stream(void) {
    if (chance(40)) {
        int base = some_base();
        int fd = openat(base, some_path(1), O_RDONLY | O_DIRECTORY);
        DIR *stream = fd < 0 ? NULL : fdopendir(fd);
        return stream;
    }
    return opendir(some_path(1));
}

static void read_all(DIR *stream, struct listing *into) {
    struct dirent *entry;
    errno = 0;
    while ((entry = readdir(stream)) != NULL) {
        take(into, entry);
    }
    if (errno != 0) {
        say(" errno=%s", strerrorname_np(errno));
    }
}

static void list(void) {
    struct listing found = {.count = 0};
    DIR *stream = some_stream();
    if (stream == NULL) {
        result(-1);
        return;
    }
    read_all(stream, &found);
    say_listing(&found);
    say(" closed=%d", closedir(stream));
}

/* What comes after a place does so again after going back there, also after new names. */
static void list_again(void) {
    struct listing first = {.count = 0}, again = {.count = 0};
    DIR *stream = some_stream();
    if (stream == NULL) {
        result(-1);
        return;
    }
    for (int skip = (int)draw(4); skip > 0; skip--) {
        readdir(stream);
    }
    long place = telldir(stream);
    read_all(stream, &first);
    seekdir(stream, place);
    read_all(stream, &again);
    say(" again=%d", first.count == again.count);
    for (int i = 0; i < first.count && i < again.count; i++) {
        if (strcmp(first.names[i], again.names[i]) != 0) {
            say(" other");
        }
    }
    for (int i = 0; i < again.count; i++) {
        free(again.names[i]);
    }
    for (int i = 0; i < first.count; i++) {
        free(first.names[i]);
    }
    again.count = 0;
    rewinddir(stream);
    read_all(stream, &again);
    say_listing(&again);
    closedir(stream);
}

static void scan(void) {
    struct dirent **entries;
    int count = scandir(some_path(1), &entries, NULL, alphasort);
    result(count);
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) {
        sum = hash(sum, entries[i]->d_name, strlen(entries[i]->d_name));
        free(entries[i]);
    }
    if (count >= 0) {
        say(" %08x", (unsigned)sum);
        free(entries);
    }
}

static void match(void) {
    static const char *const patterns[] = {"*", "f*", "d?/*", "*/f0", "m*/[fg]?", "nothing*"};
    char pattern[2048];
    snprintf(pattern, sizeof pattern, "%s/%s", chance(60) ? world.root : ".", ONE_OF(patterns));
    say_path(pattern);
    glob_t found;
    int answer = glob(pattern, GLOB_MARK, NULL, &found);
    say(" = %d %zu", answer, answer == 0 ? found.gl_pathc : 0);
    for (size_t i = 0; answer == 0 && i < found.gl_pathc && i < 30; i++) {
        say_path(found.gl_pathv[i]);
    }
    if (answer == 0) {
        globfree(&found);
    }
}

static struct listing walked;

static int visit(const char *path, const struct stat *status, int kind, struct FTW *where) {
    char text[PATH_MAX + 64];
    snprintf(text, sizeof text, "%s %o %d %d", path + strlen(world.root), status->st_mode, kind,
             where->level);
    if (walked.count < MOST_NAMES) {
        walked.names[walked.count++] = strdup(text);
    }
    return 0;
}

static void walk(void) {
    char path[2048];
    snprintf(path, sizeof path, "%s/%c%u", world.root, chance(60) ? 'd' : 'm', draw(3));
    say_path(path);
    result(nftw(path, visit, 10, FTW_PHYS | (chance(50) ? FTW_DEPTH : 0)));
    say_listing(&walked);
}

static void change_directory(void) {
    if (chance(35)) {
        uint32_t which = draw(DIRECTORIES);
        say(" D%u", which);
        result(fchdir(world.directory[which]));
        return;
    }
    result(chdir(some_home()));
}

static void enter_file(void) {
    const char *path = some_path(0);
    struct stat status;
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) {
        result(chdir(path));
    }
}

static void tell_directory(void) {
    char here[8192];
    size_t room = chance(10) ? draw(8) : sizeof here;
    char *answer = getcwd(here, room);
    say(" %zu", room);
    if (answer == NULL) {
        result(-1);
    } else {
        say_path(here);
    }
}

static void true_name(void) {
    char real[PATH_MAX];
    char *answer = realpath(some_plain_path(chance(50)), real);
    if (answer == NULL) {
        result(-1);
    } else {
        say(" =");
        say_path(real);
    }
}

const struct operation directory_operations[] = {
    {"list", NULL, 3, list},
    {"list-again", NULL, 2, list_again},
    {"scandir", NULL, 1, scan},
    {"glob", NULL, 1, match},
    {"nftw", "walks", 1, walk},
    {"chdir", NULL, 3, change_directory},
    {"chdir-file", NULL, 1, enter_file},
    {"getcwd", NULL, 1, tell_directory},
    {"realpath", NULL, 2, true_name},
    {NULL, NULL, 0, NULL},
};
