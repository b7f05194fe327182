/* Streams in a directory: the same answers are expected from any POSIX one. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"

static void write_and_read(void) {
    FILE *f = fopen("text", "w");
    CHECK(f != NULL);
    CHECK(fileno(f) > 2);
    for (int i = 0; i < 20000; i++) {
        CHECK(fprintf(f, "line %d\n", i) > 0);
    }
    CHECK(fputs("end", f) >= 0 && fputc('\n', f) == '\n');
    CHECK(ftell(f) == 208890 + 4);
    CHECK(fflush(f) == 0);
    struct stat st;
    CHECK(fstat(fileno(f), &st) == 0 && st.st_size == 208894);
    CHECK(fclose(f) == 0);
    errno = 0;
    CHECK(fopen("missing", "r") == NULL && errno == ENOENT);
    errno = 0;
    CHECK(fopen("text", "wx") == NULL && errno == EEXIST);

    f = fopen("text", "r");
    CHECK(f != NULL);
    char line[100], expected[100];
    for (int i = 0; i < 20000; i++) {
        snprintf(expected, sizeof expected, "line %d\n", i);
        CHECK(fgets(line, sizeof line, f) == line && strcmp(line, expected) == 0);
    }
    CHECK(fgets(line, sizeof line, f) != NULL && strcmp(line, "end\n") == 0);
    CHECK(fgets(line, sizeof line, f) == NULL && feof(f) && !ferror(f));
    rewind(f);
    int number;
    CHECK(fscanf(f, "line %d", &number) == 1 && number == 0);
    CHECK(fseek(f, -4, SEEK_END) == 0 && ftell(f) == 208890);
    CHECK(fgetc(f) == 'e' && ungetc('E', f) == 'E' && getc(f) == 'E' && getc(f) == 'n');
    CHECK(fseek(f, 2, SEEK_CUR) == 0 && getc(f) == EOF);
    CHECK(fputc('x', f) == EOF);
    CHECK(fclose(f) == 0);
}

static void update(void) {
    FILE *f = fopen("both", "w+");
    CHECK(f != NULL && fwrite("0123456789", 1, 10, f) == 10);
    CHECK(fseek(f, 3, SEEK_SET) == 0 && fwrite("abc", 3, 1, f) == 1);
    rewind(f);
    char text[32] = {0};
    CHECK(fread(text, 1, 31, f) == 10 && strcmp(text, "012abc6789") == 0);
    CHECK(fclose(f) == 0);
    f = fopen("both", "r+");
    CHECK(f != NULL && getc(f) == '0' && fseek(f, 0, SEEK_CUR) == 0 && putc('-', f) == '-');
    CHECK(fflush(f) == 0 && getc(f) == '2');
    CHECK(fclose(f) == 0);
    f = fopen("both", "a+");
    CHECK(f != NULL && fputs("end", f) >= 0 && ftell(f) == 13);
    rewind(f);
    memset(text, 0, sizeof text);
    CHECK(fread(text, 1, 31, f) == 13 && strcmp(text, "0-2abc6789end") == 0);
    CHECK(fclose(f) == 0);
    f = fopen("both", "a");
    CHECK(f != NULL && fputs("!", f) >= 0 && fclose(f) == 0);
    struct stat st;
    CHECK(stat("both", &st) == 0 && st.st_size == 14);
}

static void buffering(void) {
    struct stat st;
    FILE *f = fopen("buffer", "w");
    CHECK(f != NULL && setvbuf(f, NULL, _IONBF, 0) == 0);
    CHECK(fputs("now", f) >= 0 && stat("buffer", &st) == 0 && st.st_size == 3);
    CHECK(fclose(f) == 0);
    static char space[65536];
    f = fopen("buffer", "w");
    CHECK(f != NULL && setvbuf(f, space, _IOFBF, sizeof space) == 0);
    for (int i = 0; i < 60000; i++) {
        CHECK(putc('b', f) == 'b');
    }
    CHECK(stat("buffer", &st) == 0 && st.st_size == 0);
    CHECK(fclose(f) == 0 && stat("buffer", &st) == 0 && st.st_size == 60000);
    f = fopen("buffer", "w");
    CHECK(f != NULL && setvbuf(f, NULL, _IOLBF, 0) == 0);
    CHECK(fputs("one\ntw", f) >= 0 && stat("buffer", &st) == 0 && st.st_size >= 4);
    CHECK(fclose(f) == 0);
}

/* How much room a seek from the end leaves in the buffer shows in when it is written. */
static void seek_from_end(void) {
    static char space[16];
    struct stat st;
    FILE *f = fopen("end", "w");
    CHECK(f != NULL && fprintf(f, "%300s", "") == 300 && fclose(f) == 0);
    f = fopen("end", "r+");
    CHECK(f != NULL && setvbuf(f, space, _IOFBF, sizeof space) == 0);
    CHECK(fseek(f, -3, SEEK_END) == 0 && ftell(f) == 297 && fputc('x', f) == 'x');
    CHECK(fprintf(f, "0123456789ab\n") == 13 && stat("end", &st) == 0 && st.st_size == 311);
    CHECK(fclose(f) == 0);
}

static void descriptors(void) {
    int fd = open("fd", O_RDWR | O_CREAT | O_TRUNC, 0644);
    FILE *f = fdopen(fd, "w");
    CHECK(f != NULL && fileno(f) == fd);
    CHECK(fputs("through a stream", f) >= 0 && fflush(f) == 0);
    CHECK(write(fd, ", and not", 9) == 9);
    char text[64] = {0};
    CHECK(pread(fd, text, 63, 0) == 25 && strcmp(text, "through a stream, and not") == 0);
    CHECK(fclose(f) == 0);
    FAILS(close(fd), EBADF);
}

static void reopening(void) {
    FILE *f = fopen("first", "w");
    CHECK(f != NULL && fputs("1", f) >= 0);
    FILE *again = freopen("second", "w", f);
    CHECK(again == f && fputs("22", f) >= 0);
    CHECK(freopen("first", "r", f) == f && getc(f) == '1' && getc(f) == EOF);
    CHECK(fputc('x', f) == EOF);
    CHECK(fclose(f) == 0);
    struct stat st;
    CHECK(stat("second", &st) == 0 && st.st_size == 2);
    f = fopen("second", "a");
    CHECK(f != NULL && fputs("gone by then", f) >= 0 && freopen("second", "w", f) == f);
    CHECK(stat("second", &st) == 0 && st.st_size == 0 && fclose(f) == 0);
}

/* Everything above leaves the standard streams alone; this does not, so it comes last. */
static void standard_streams(void) {
    CHECK(printf("to the old place\n") > 0 && fflush(stdout) == 0);
    int saved = dup(1);
    int fd = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(dup2(fd, 1) == 1 && close(fd) == 0);
    CHECK(printf("hello %d\n", 1) == 8 && puts("there") >= 0 && putchar('!') == '!');
    CHECK(fflush(stdout) == 0);
    pid_t child = fork();
    if (child == 0) {
        execlp("sh", "sh", "-c", "echo from a child", (char *)NULL);
        _exit(127);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(system("echo from system") == 0);
    CHECK(dup2(saved, 1) == 1 && close(saved) == 0);
    CHECK(printf("back\n") == 5 && fflush(stdout) == 0);
    char text[200] = {0};
    fd = open("out", O_RDONLY);
    CHECK(read(fd, text, sizeof text) > 0 && close(fd) == 0);
    CHECK(strcmp(text, "hello 1\nthere\n!from a child\nfrom system\n") == 0);
    CHECK(freopen("out", "w", stdout) != NULL);
    CHECK(printf("reopened") == 8 && fclose(stdout) == 0);
    struct stat st;
    CHECK(stat("out", &st) == 0 && st.st_size == 8);
    CHECK(freopen("text", "r", stdin) != NULL);
    char word[20];
    int number;
    CHECK(scanf("%19s %d", word, &number) == 2 && strcmp(word, "line") == 0 && number == 0);
}

int main(int count, char **arguments) {
    umask(022);
    enter(count, arguments);
    write_and_read();
    update();
    buffering();
    seek_from_end();
    descriptors();
    reopening();
    standard_streams();
    const char *names[] = {"text", "both", "buffer", "fd", "first", "second", "out"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        CHECK(unlink(names[i]) == 0);
    }
    return 0;
}
