/* Names that nothing has, as `mktemp` finds them. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "told.h"

static void named(const char *template) {
    char name[64];
    strcpy(name, template);
    errno = 0;
    char *answer = mktemp(name);
    int number = errno;
    size_t kept = strcspn(template, "X");
    printf("%s: %d, kept %d, changed %d, %s\n", template, answer == name && *name != 0,
           strncmp(name, template, kept) == 0, strcmp(name, template) != 0,
           *name == 0 ? strerrorname_np(number) : "found");
    if (*name != 0) {
        TELL(access(name, F_OK));
        TELL(mkdir(name, 0700));
        TELL(rmdir(name));
    }
}

int main(void) {
    MUST(mkdir("directory", 0700) == 0);
    MUST(close(creat("file", 0600)) == 0);
    named("plain-XXXXXX");
    named("XXXXXX");
    named("directory/in-XXXXXX");
    named("more-XXXXXXXXX");
    named("missing/in-XXXXXX");
    /* Who does not look there does not know. */
    named("file/in-XXXXXX");
    named("few-XXXXX");
    named("behind-XXXXXX-");
    named("none");
    char one[] = "one-XXXXXX", other[] = "one-XXXXXX";
    MUST(*mktemp(one) != 0 && *mktemp(other) != 0);
    printf("two differ: %d\n", strcmp(one, other) != 0);
    return 0;
}
