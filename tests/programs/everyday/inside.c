/* What libc does by itself, without calls of its own that a program makes: wide and converting
 * streams, streams put elsewhere, walks, child programs, libraries; run in an empty directory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <locale.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

#define CHECK(what)                                                                   \
    do {                                                                              \
        if (!(what)) {                                                                \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);                        \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

extern char **environ;

static int tell(const char *path, const struct stat *st, int kind, struct FTW *place) {
    (void)st;
    printf("%s %d %d %d\n", path, kind, place->base, place->level);
    return strstr(path, "skip") != NULL ? FTW_SKIP_SUBTREE : 0;
}

static int stand(const char *path, const struct stat *st, int kind, struct FTW *place) {
    (void)st;
    (void)kind;
    CHECK(access(path + place->base, F_OK) == 0);
    return 0;
}

static int stop(const char *path, const struct stat *st, int kind) {
    (void)st;
    (void)kind;
    return strcmp(path, "d/s") == 0 ? 7 : 0;
}

static void walks(void) {
    CHECK(mkdir("d", 0755) == 0 && mkdir("d/s", 0755) == 0 && mkdir("d/s/skip", 0755) == 0);
    CHECK(mkdir("d/s/skip/x", 0755) == 0);
    CHECK(nftw("d", tell, 10, FTW_PHYS) == FTW_SKIP_SUBTREE);
    CHECK(nftw("./d", tell, 10, FTW_ACTIONRETVAL) == 0);
    CHECK(nftw("d", stand, 10, FTW_CHDIR) == 0 && access("d/s", F_OK) == 0);
    CHECK(ftw("d", stop, 5) == 7 && nftw("none", tell, 5, 0) == -1);
}

static void wide_streams(void) {
    FILE *f = fopen("wide", "w");
    CHECK(f != NULL && fputws(L"h\u00e4llo\n", f) >= 0);
    CHECK(fwprintf(f, L"%d %ls\n", 5, L"w\u00fc") > 0 && fclose(f) == 0);
    wchar_t line[50];
    int number = 0;
    f = fopen("wide", "r");
    CHECK(fgetws(line, 50, f) != NULL && wcscmp(line, L"h\u00e4llo\n") == 0);
    CHECK(fwscanf(f, L"%d", &number) == 1 && number == 5 && ftell(f) == 8 && fclose(f) == 0);
    f = fopen("latin", "w,ccs=ISO-8859-1");
    CHECK(f != NULL && fputws(L"\u00e4\n", f) >= 0 && fclose(f) == 0);
    struct stat st;
    CHECK(stat("latin", &st) == 0 && st.st_size == 2);
}

static void streams_put_elsewhere(void) {
    char line[50];
    FILE *f = fopen("/dev/zero", "r");
    CHECK(freopen("wide", "a", f) == f && fputs("more\n", f) >= 0 && ftell(f) == 18);
    CHECK(freopen("/dev/null", "r", f) == f && getc(f) == EOF);
    CHECK(freopen("wide", "r", f) == f && fgets(line, 50, f) != NULL);
    CHECK(freopen(NULL, "r+", f) == f && fputc('H', f) == 'H' && fclose(f) == 0);
    f = fopen("wide", "r");
    CHECK(freopen("none", "r", f) == NULL);

    CHECK(fflush(stdout) == 0);
    int before = dup(STDOUT_FILENO);
    CHECK(freopen("out", "w", stdout) == stdout && printf("printed\n") > 0 && fflush(stdout) == 0);
    CHECK(dprintf(STDOUT_FILENO, "by number\n") > 0 && system("echo by a child") == 0);
    CHECK(dup2(before, STDOUT_FILENO) == STDOUT_FILENO && system("cat out") == 0);
    FILE *p = popen("cat wide | wc -l", "r");
    CHECK(p != NULL && fgets(line, 50, p) != NULL && pclose(p) == 0 && atoi(line) == 3);
}

static void child_programs(void) {
    posix_spawn_file_actions_t actions;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_addchdir_np(&actions, "d") == 0);
    CHECK(posix_spawn_file_actions_addopen(&actions, 1, "made", O_WRONLY | O_CREAT, 0640) == 0);
    CHECK(posix_spawn_file_actions_addclose(&actions, 0) == 0);
    char *arguments[] = {"sh", "-c", "echo spawned; echo here > here", NULL};
    pid_t child;
    int status;
    CHECK(posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0 && access("d/here", F_OK) == 0);
    CHECK(posix_spawn(&child, "d/none", &actions, NULL, arguments, environ) == 2);
    posix_spawn_file_actions_destroy(&actions);
    CHECK(system("cp /bin/true d/program") == 0);
    CHECK(setenv("PATH", "d:/usr/bin:/bin", 1) == 0);
    char *own[] = {"program", NULL};
    CHECK(posix_spawnp(&child, "program", NULL, NULL, own, environ) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void libraries(void) {
    CHECK(system("echo 'int seven(void) { return 7; }' > seven.c") == 0);
    CHECK(system("gcc -shared -fPIC -o libseven.so seven.c") == 0);
    void *library = dlopen("./libseven.so", RTLD_NOW);
    CHECK(library != NULL && library == dlopen("./libseven.so", RTLD_NOW));
    int (*seven)(void) = NULL;
    *(void **)&seven = dlsym(library, "seven");
    CHECK(seven != NULL && seven() == 7 && dlopen("./none.so", RTLD_NOW) == NULL);
    CHECK(dlopen("libm.so.6", RTLD_NOW) != NULL);
}

int main(void) {
    CHECK(setlocale(LC_ALL, "C.UTF-8") != NULL);
    walks();
    wide_streams();
    streams_put_elsewhere();
    child_programs();
    libraries();
    return 0;
}
