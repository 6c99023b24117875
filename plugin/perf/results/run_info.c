/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "perf/results/run_info.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

/* The key of the model's name: x86 has "model name", other architectures "Model", "cpu model" or
 * nothing. */
static void read_cpu(char *out, size_t len)
{
    static const char *const keys[] = {"model name", "cpu model", "Model", "cpu"};
    FILE *f = fopen("/proc/cpuinfo", "re");
    size_t best = sizeof(keys) / sizeof(keys[0]);
    char line[256];

    while (f && fgets(line, sizeof(line), f)) {
        const char *value = strchr(line, ':');

        for (size_t i = 0; value && i < best; i++) {
            size_t n = strlen(keys[i]);

            if (strncmp(line, keys[i], n) != 0 || (line[n] != '\t' && line[n] != ' '))
                continue;
            value += 1 + strspn(value + 1, " \t");
            snprintf(out, len, "%.*s", (int)strcspn(value, "\n"), value);
            best = i;
        }
    }
    if (f)
        fclose(f);
}

void pvn_run_info_fill(struct pvn_run_info *info, int argc, char **argv)
{
    time_t now = time(NULL);
    struct utsname u;
    struct tm tm;

    memset(info, 0, sizeof(*info));
    info->argc = argc;
    info->argv = malloc((size_t)(argc + 1) * sizeof(*argv));
    if (info->argv)
        memcpy(info->argv, argv, (size_t)(argc + 1) * sizeof(*argv));
    else
        info->argv = argv;
    info->began = pvn_now_s();
    if (gmtime_r(&now, &tm))
        strftime(info->started, sizeof(info->started), "%Y-%m-%dT%H:%M:%SZ", &tm);
    gethostname(info->host, sizeof(info->host) - 1);
    if (uname(&u) == 0)
        snprintf(info->kernel, sizeof(info->kernel), "%s %s %s", u.sysname, u.release, u.machine);
    read_cpu(info->cpu, sizeof(info->cpu));
    info->cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
}
