/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo check: the two snapshots of the adapters' counters. */
#include "topo/tool/load/counters.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "plugin/base/clock.h"
#include "topo/capture/open.h"
#include "topo/check/check.h"

void tool_sleep(double seconds)
{
    struct timespec pause = {.tv_sec = (time_t)seconds};
    pause.tv_nsec = (long)((seconds - (double)pause.tv_sec) * 1e9);
    while (seconds > 0 && nanosleep(&pause, &pause) < 0 && errno == EINTR)
        continue;
}

/* Reads the counters of t->topo. in: the input from which the root was read, NULL for a directory.
 * Returns an exit status; errors are printed. */
static int look_at(const struct tool *t, const struct pvn_topo_input *in,
                   struct pvn_topo_look *look)
{
    const struct pvn_topo_ethtool *ethtool = t->topo->live ? pvn_topo_ethtool_open() : NULL;
    struct pvn_topo_fs *fs = NULL;
    struct pvn_topo_err err = {""};
    int rc;
    if (!in)
        rc = pvn_topo_fs_open_dir(t->root, NULL, &fs);
    else if (in->kind == PVN_TOPO_INPUT_TAR)
        rc = pvn_topo_fs_open_tar(in->data, in->len, &fs, &err);
    else
        rc = 0; /* outputs of other tools have no counters */
    if (fs)
        rc = pvn_topo_look_read(fs, t->topo, NULL, 0, ethtool, look);
    pvn_topo_fs_close(fs);
    pvn_topo_ethtool_close(ethtool);
    if (rc == 0)
        return TOOL_OK;
    tool_error("%s: the counters of the adapters cannot be read: %s", t->root,
               err.text[0] ? err.text : strerror(-rc));
    return TOOL_INPUT;
}

int tool_load_counters(struct tool *t, const struct pvn_topo_input *in)
{
    t->may_change = !in;
    t->looked_s = pvn_now_s();
    return look_at(t, in, &t->look);
}

int tool_check_counters(struct tool *t, struct pvn_topo_checks *checks)
{
    bool twice = t->may_change && t->interval_s > 0 && pvn_topo_look_counters(&t->look) > 0;
    double seconds = 0;
    if (twice) {
        tool_sleep(t->looked_s + t->interval_s - pvn_now_s());
        seconds = pvn_now_s() - t->looked_s;
        if (look_at(t, NULL, &t->look_again) != TOOL_OK)
            return -EIO;
    }
    t->looked_twice = twice;
    return pvn_topo_check_counters(t->topo, &t->look, twice ? &t->look_again : NULL, seconds,
                                   checks);
}

void tool_print_counted(const struct tool *t)
{
    const struct pvn_topo_look *look = t->looked_twice ? &t->look_again : &t->look;
    bool headed = false;
    for (int i = 0; i < look->n; i++) {
        const struct pvn_topo_counted *c = &look->list[i];
        char name[PVN_TOPO_NAME_MAX], text[1024] = "";
        for (int k = 0; k < c->n; k++) {
            size_t used = strlen(text);
            if (c->counters[k].value > 0)
                snprintf(text + used, sizeof(text) - used, "%s%s %" PRIu64, used ? ", " : "",
                         c->counters[k].name, c->counters[k].value);
        }
        if (!text[0])
            continue;
        if (!headed)
            fprintf(t->out,
                    "\nCounted since the drivers were loaded; only what grows matters now:\n");
        headed = true;
        tool_wrap(t,
                  fprintf(t->out, "  %s: ", pvn_topo_counted_name(t->topo, c, name, sizeof(name))),
                  6, text);
    }
}
