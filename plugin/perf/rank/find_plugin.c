/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Finds the file for --plugin: a path, a name for the loader, or by default this project's plugin,
 * which was installed or copied together with this program. */
#include "config.h"

#include "perf/rank/rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char own[] = "libnccl-net-pvrdma.so";

static bool try_dir(struct pvn_rank *r, const char *dir)
{
    size_t at = strlen(r->looked);

    snprintf(r->path, sizeof(r->path), "%s/%s", dir, own);
    if (access(r->path, R_OK) == 0)
        return true;
    snprintf(r->looked + at, sizeof(r->looked) - at, "%s%s", at ? ", " : "", dir);
    return false;
}

/* Looks beside this program: in its build tree, or in the library directory at the installed place
 * relative to this program. */
static bool try_beside(struct pvn_rank *r)
{
    const char *below = strncmp(PVN_LIBDIR, PVN_PREFIX "/", strlen(PVN_PREFIX) + 1) == 0
                            ? PVN_LIBDIR + strlen(PVN_PREFIX) + 1
                            : "lib";
    char exe[300], dir[340];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    char *slash;

    exe[n > 0 ? n : 0] = '\0';
    slash = strrchr(exe, '/');
    if (!slash)
        return false;
    *slash = '\0';
    snprintf(dir, sizeof(dir), "%s/.libs", exe);
    if (try_dir(r, dir))
        return true;
    slash = strrchr(exe, '/'); /* $ORIGIN/.. */
    if (!slash)
        return false;
    *slash = '\0';
    snprintf(dir, sizeof(dir), "%s/%.32s", exe, below);
    if (try_dir(r, dir))
        return true;
    snprintf(dir, sizeof(dir), "%s/lib", exe);
    return strcmp(below, "lib") != 0 && try_dir(r, dir);
}

/* Notes where the loader searches for a name without a path. */
static void note_loader(struct pvn_rank *r)
{
    const char *paths = getenv("LD_LIBRARY_PATH");
    char before[sizeof(r->looked)];

    memcpy(before, r->looked, sizeof(before));
    snprintf(
        r->looked, sizeof(r->looked),
        " (looked in %.300s%sLD_LIBRARY_PATH%s%.100s and the loader's own directories; --plugin "
        "takes a path as well)",
        before, before[0] ? ", " : "", paths ? "=" : " (not set)", paths ? paths : "");
}

void pvn_rank_find_plugin(struct pvn_rank *r)
{
    const char *what = r->o->plugin[r->plugin].what;

    r->looked[0] = '\0';
    if (what[0] && strcmp(what, "pvrdma") != 0 && strcmp(what, own) != 0) {
        snprintf(r->path, sizeof(r->path), "%s", what);
        if (!strchr(what, '/'))
            note_loader(r);
        return;
    }
    if (try_beside(r) || try_dir(r, PVN_LIBDIR)) {
        r->looked[0] = '\0';
        return;
    }
    snprintf(r->path, sizeof(r->path), "%s", own);
    note_loader(r);
}
