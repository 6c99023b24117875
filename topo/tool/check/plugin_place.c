/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "topo/tool/check/plugin_place.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Finds the first directory that matches `where`, which may have wildcards, and has the file. */
static bool look(const char *where, const char *file, char *dir, size_t cap)
{
    char path[2 * PATH_MAX];
    glob_t found = {0};
    bool there = false;
    snprintf(path, sizeof(path), "%s/%s", where, file);
    glob(path, 0, NULL, &found);
    for (size_t i = 0; i < found.gl_pathc && !there; i++) {
        there = access(found.gl_pathv[i], R_OK) == 0 && realpath(found.gl_pathv[i], path);
        if (there)
            snprintf(dir, cap, "%.*s", (int)(strrchr(path, '/') - path), path);
    }
    globfree(&found);
    return there;
}

/* Looks beside this program: an archive, and pip's package, have the tools in bin beside lib. */
static bool beside_this_program(const char *file, char *dir, size_t cap)
{
    char exe[PATH_MAX], where[PATH_MAX + 64];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(exe, '/');
        if (!slash)
            return false;
        *slash = '\0';
    }
    snprintf(where, sizeof(where), "%s/lib", exe);
    return look(where, file, dir, cap);
}

/* Looks in the packages of a Python below prefix: a virtual environment, conda, the user's, the system's. */
static bool in_python(const char *prefix, const char *file, char *dir, size_t cap)
{
    char where[PATH_MAX + 64];
    if (!prefix || !prefix[0])
        return false;
    snprintf(where, sizeof(where), "%s/lib/python3*/*-packages/nccl_net_pvrdma/lib", prefix);
    return look(where, file, dir, cap);
}

bool tool_plugin_place(const char *file, char *dir, size_t cap)
{
    char own[PATH_MAX / 2];
    const char *home = getenv("HOME");
    snprintf(own, sizeof(own), "%s/.local", home ? home : "");
    return beside_this_program(file, dir, cap) ||
           in_python(getenv("VIRTUAL_ENV"), file, dir, cap) ||
           in_python(getenv("CONDA_PREFIX"), file, dir, cap) ||
           (home && in_python(own, file, dir, cap)) || in_python("/usr/local", file, dir, cap) ||
           in_python("/usr", file, dir, cap) || look("/usr/local/lib", file, dir, cap) ||
           look("/usr/local/lib64", file, dir, cap);
}
