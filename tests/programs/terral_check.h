/* What programs check that call terral.h. */
#ifndef TERRAL_CHECK_H
#define TERRAL_CHECK_H
#include <terral.h>

#include "check.h"

/* That `call` gives no pointer and says why. */
#define NONE(call, code) \
    do { \
        errno = 0; \
        CHECK((call) == NULL && errno == (code)); \
        CHECK(terral_error()[0] != '\0'); \
    } while (0)

#endif
