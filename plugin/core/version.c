#include "config.h"
#include "core/version.h"

const char *pvn_version(void)
{
    return PACKAGE_VERSION;
}
