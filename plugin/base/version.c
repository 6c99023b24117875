#include "config.h"
#include "base/version.h"

const char *pvn_version(void)
{
    return PACKAGE_VERSION;
}
