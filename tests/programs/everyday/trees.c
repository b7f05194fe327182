/* Walks a tree with fts in every way it offers, and says what it met; run in an empty directory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void made(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

static int by_name(const FTSENT **one, const FTSENT **other) {
    return strcmp((*one)->fts_name, (*other)->fts_name);
}

static int backwards(const FTSENT **one, const FTSENT **other) {
    return -by_name(one, other);
}

static int sizes;

static void say(const FTSENT *entry) {
    printf("%d %d %s|%s %d", entry->fts_info, entry->fts_level, entry->fts_path, entry->fts_name,
           entry->fts_errno);
    if (sizes && (entry->fts_info == FTS_F || entry->fts_info == FTS_SL)) {
        printf(" %lld", (long long)entry->fts_statp->st_size);
    }
    if (entry->fts_info == FTS_DC) {
        printf(" as %s", entry->fts_cycle->fts_name);
    }
    printf(" %ld %d\n", entry->fts_parent->fts_number, entry->fts_parent->fts_level);
}

/* The first letter of a name says what is asked of it next. */
static void walk(const char *what, char *const *roots, int options,
                 int (*compare)(const FTSENT **, const FTSENT **)) {
    printf("%s\n", what);
    sizes = !(options & FTS_NOSTAT);
    errno = 0;
    FTS *tree = fts_open(roots, options, compare);
    if (tree == NULL) {
        printf("not opened: %d\n", errno);
        return;
    }
    FTSENT *entry;
    int again = 0;
    while ((entry = fts_read(tree)) != NULL) {
        entry->fts_number++;
        entry->fts_parent->fts_number += 100;
        say(entry);
        if (entry->fts_name[0] == 's' && entry->fts_info == FTS_D) {
            fts_set(tree, entry, FTS_SKIP);
        } else if (entry->fts_name[0] == 'g' && entry->fts_info == FTS_SL) {
            fts_set(tree, entry, FTS_FOLLOW);
        } else if (entry->fts_name[0] == 'f' && again++ == 1) {
            fts_set(tree, entry, FTS_AGAIN);
        } else if (entry->fts_name[0] == 'c' && entry->fts_info == FTS_D) {
            FTSENT *child = fts_children(tree, FTS_NAMEONLY);
            for (; child != NULL; child = child->fts_link) {
                printf("  name %s\n", child->fts_name);
            }
            for (child = fts_children(tree, 0); child != NULL; child = child->fts_link) {
                printf("  child %s %d\n", child->fts_name, child->fts_info);
                if (child->fts_name[0] == 'x') {
                    fts_set(tree, child, FTS_SKIP);
                }
            }
        }
    }
    printf("ends with %d, closed %d\n", errno, fts_close(tree));
}

int main(void) {
    if (mkdir("a", 0755) || mkdir("a/children", 0755) || mkdir("a/skipped", 0755) ||
        mkdir("a/empty", 0755) || mkdir("a/children/deep", 0755) || symlink("..", "a/up") ||
        symlink("children", "a/go") || symlink("nowhere", "a/gone") || symlink("a", "link")) {
        perror("tree");
        return 1;
    }
    made("a/file", "text");
    made("a/skipped/inside", "1");
    made("a/children/xfirst", "12");
    made("a/children/xlast", "123");
    made("a/children/deep/f", "1234");
    made("other", "12345");
    char *one[] = {"a", NULL}, *more[] = {"other", "./a/children/", "missing", "link", NULL};
    char *deep[] = {"a/children/deep", "other", NULL};
    char *here[] = {".", NULL}, *bad[] = {"a", "", NULL};
    char whole[4096];
    char *absolute[] = {strcat(getcwd(whole, 4000), "/a/children"), NULL};
    walk("physical", one, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    walk("backwards", one, FTS_PHYSICAL | FTS_NOCHDIR, backwards);
    walk("logical", one, FTS_LOGICAL, by_name);
    walk("several", more, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    walk("unordered", deep, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    walk("roots followed", more, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, by_name);
    walk("no stat", one, FTS_PHYSICAL | FTS_NOSTAT | FTS_NOCHDIR, by_name);
    walk("dots", here, FTS_PHYSICAL | FTS_SEEDOT | FTS_XDEV | FTS_NOCHDIR, by_name);
    walk("empty name", bad, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    walk("unknown option", one, 0x4000, by_name);
    FTS *tree = fts_open(absolute, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    fts_read(tree);
    fts_read(tree);
    printf("left early: %d %d\n", fts_children(tree, 99) == NULL && errno == EINVAL,
           fts_close(tree));
    return 0;
}
