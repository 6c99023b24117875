/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* pvn-topo stat --watch: repeated output, as a table of rates or, for a collector, as lines of
 * JSON. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/base/param.h"
#include "topo/tool/stat/stat_adapters.h"
#include "topo/tool/stat/stat_grown.h"
#include "topo/tool/stat/stat_hidden.h"
#include "topo/tool/stat/stat_job.h"
#include "topo/tool/stat/stat_look.h"
#include "topo/tool/stat/stat_rates.h"
#include "topo/tool/stat/stat_screen.h"

/* "12.3k", or "-" if the value is not counted or has no earlier snapshot. */
static const char *rate(const struct stat_rates *s, double n, bool known, char *buf, size_t len)
{
    static const char units[] = " kMGT";
    int u = 0;
    if (!known || s->seconds <= 0) {
        snprintf(buf, len, "-");
        return buf;
    }
    for (n /= s->seconds; n >= 9999.5 && u < 4; u++)
        n /= 1000;
    snprintf(buf, len, "%.*f%.*s", n < 99.95 && n > 0 ? 1 : 0, n, u > 0, units + u);
    return buf;
}

static void print_row(const struct tool *t, const char *name, const struct stat_rates *s)
{
    char b[6][32];
    bool tcp = (s->known & PVN_STAT_KNOWS_RETRANSMITS) != 0,
         rdma = (s->known & PVN_STAT_KNOWS_DOORBELLS) != 0;
    fprintf(t->out, "%9s %9s %9s %9s %10s %9s %6llu %s%8d%s  %s\n",
            rate(s, s->sent, true, b[0], sizeof(b[0])),
            rate(s, s->received, true, b[1], sizeof(b[1])),
            rate(s, s->messages, true, b[2], sizeof(b[2])),
            rate(s, s->retransmits, tcp, b[3], sizeof(b[3])),
            rate(s, s->doorbells, rdma, b[4], sizeof(b[4])),
            rate(s, s->empty_polls, true, b[5], sizeof(b[5])), (unsigned long long)s->open,
            s->troubled ? t->red : "", s->troubled, s->troubled ? t->off : "", name);
}

/* Adds a process to the sum. Each is divided by its own time, because hosts are not read at the
 * same time. */
static void add_to_sum(struct stat_rates *sum, const struct stat_rates *s)
{
    double by = s->seconds > 0 ? 1 / s->seconds : 0;
    sum->seconds = by > 0 ? 1 : sum->seconds;
    sum->sent += s->sent * by;
    sum->received += s->received * by;
    sum->messages += s->messages * by;
    sum->retransmits += s->retransmits * by;
    sum->doorbells += s->doorbells * by;
    sum->empty_polls += s->empty_polls * by;
    sum->known |= s->known;
    sum->open += s->open;
    sum->troubled += s->troubled;
}

/* Prints the table of rates. If it does not fit on the screen, comms in trouble come first. */
static void print_rates(const struct tool *t, const struct stat_list *now, struct stat_list *before,
                        int lines)
{
    struct stat_rates sum = {0};
    int shown = 0;
    fprintf(t->out, "%s%9s %9s %9s %9s %10s %9s %6s %8s  process%s\n", t->dim, "sent B/s",
            "recv B/s", "msg/s", "resent/s", "doorbell/s", "empty/s", "open", "troubled", t->off);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < now->n; i++) {
            const struct pvn_stats *f = &now->file[i];
            int old = stat_list_find(before, f);
            struct stat_rates s = stat_rates_of(f, old >= 0 ? &before->file[old] : NULL);
            struct stat_node node = {.host = f->head.id.host, .pid = f->head.id.pid, .file = f};
            char name[200];
            if (pass == 0)
                add_to_sum(&sum, &s);
            if ((s.troubled > 0) != (pass == 0) || (lines > 0 && shown >= lines))
                continue;
            shown++;
            print_row(t, stat_node_name(&node, name, sizeof(name)), &s);
        }
    }
    if (shown < now->n)
        fprintf(t->out, "%83s  and %d more processes\n", "", now->n - shown);
    print_row(t, "all", &sum);
}

/* Reads this host, with the adapters' counters. */
static int look(struct tool *t, struct tool_answers *a, struct stat_list *list,
                struct stat_adapters *adapters, int argc, char **argv)
{
    char sysfs[PVN_PARAM_STR_LEN];
    glob_t dirs;
    *adapters = (struct stat_adapters){0};
    if (t->hosts)
        return stat_look_hosts(t, a, list);
    dirs = stat_directories(sysfs, sizeof(sysfs));
    stat_read_from(list, &dirs, argc, argv);
    globfree(&dirs);
    stat_adapters_read(t, list, sysfs, adapters);
    return TOOL_OK;
}

/* Prints one output as text; lines: limit for the table of rates, 0: none. */
static void print_look(const struct tool *t, const struct tool_answers *a,
                       const struct stat_list *now, struct stat_list *before,
                       const struct stat_adapters *adapters, const struct stat_adapters *earlier,
                       double seconds, int lines)
{
    stat_print_job(t, now);
    stat_print_hosts(t, now);
    if (!t->hosts && now->n == 0) {
        json_t *hidden = stat_hidden();
        stat_print_hidden(t, hidden);
        json_decref(hidden);
    }
    print_rates(t, now, before, lines);
    stat_print_adapter_rates(t, earlier, adapters);
    stat_print_grown_rates(t, a->list, a->n, seconds);
}

/* The number of lines besides those of the processes. */
static int other_lines(const struct tool *t, const struct tool_answers *a,
                       const struct stat_list *now, struct stat_list *before,
                       const struct stat_adapters *adapters, const struct stat_adapters *earlier,
                       double seconds)
{
    struct tool to = *t;
    char *text = NULL;
    size_t len = 0;
    int lines;
    if (!(to.out = open_memstream(&text, &len)))
        return 0;
    print_look(&to, a, now, before, adapters, earlier, seconds, 1);
    fclose(to.out);
    lines = stat_screen_lines(text, len) - 1;
    free(text);
    return lines;
}

/* Shows as much as fits into the terminal's window. */
static int show_on_screen(const struct tool *t, const struct tool_answers *a,
                          const struct stat_list *now, struct stat_list *before,
                          const struct stat_adapters *adapters, const struct stat_adapters *earlier,
                          double seconds)
{
    struct stat_screen screen = stat_screen_size();
    struct tool to = *t;
    char *text = NULL;
    size_t len = 0;
    int lines;
    to.width = screen.columns < 40 ? 40 : screen.columns < 120 ? screen.columns : 120;
    lines = screen.rows - 1 - other_lines(&to, a, now, before, adapters, earlier, seconds);
    if (!(to.out = open_memstream(&text, &len))) {
        tool_error("out of memory for a look");
        return TOOL_INPUT;
    }
    print_look(&to, a, now, before, adapters, earlier, seconds, lines < 1 ? 1 : lines);
    fclose(to.out);
    stat_screen_put(t->out, text, len, screen);
    free(text);
    return TOOL_OK;
}

/* Shows the current data; before, earlier, elsewhere: the previous data. */
static int show(const struct tool *t, const struct tool_answers *a, const struct stat_list *now,
                struct stat_list *before, const struct stat_adapters *adapters,
                const struct stat_adapters *earlier, const struct stat_grown_earlier *elsewhere)
{
    double seconds = stat_grown_compare(elsewhere, a->list, a->n);
    if (t->json)
        return stat_print_json(t, now, before, stat_adapters_json(earlier, adapters));
    if (t->terminal && !t->all)
        return show_on_screen(t, a, now, before, adapters, earlier, seconds);
    if (t->terminal)
        fputs("\033[H\033[2J", t->out);
    print_look(t, a, now, before, adapters, earlier, seconds, 0);
    fputs(t->terminal ? "" : "\n", t->out);
    return TOOL_OK;
}

int stat_watch(struct tool *t, int argc, char **argv)
{
    struct tool_answers a = {0};
    struct stat_list now = {0}, before = {0};
    struct stat_adapters adapters, earlier = {0};
    struct stat_grown_earlier elsewhere = {0};
    int status = t->hosts ? tool_hosts_read(t, &a) : TOOL_OK;
    for (int i = 0; status == TOOL_OK && (t->count == 0 || i < t->count); i++) {
        if (i > 0)
            tool_sleep(t->watch_s);
        now = (struct stat_list){0};
        memcpy(now.other_version, before.other_version, sizeof(now.other_version));
        status = look(t, &a, &now, &adapters, argc, argv);
        if (status == TOOL_OK) {
            status = show(t, &a, &now, &before, &adapters, &earlier, &elsewhere);
            stat_grown_keep(&elsewhere, a.list, a.n);
            /* Stops at a write error, or a full disk would be written to without end. main prints
             * the reason. */
            if (fflush(t->out) != 0) {
                t->write_errno = errno;
                status = TOOL_INPUT;
            }
        }
        stat_list_free(&before);
        before = now;
        stat_adapters_free(&earlier);
        earlier = adapters;
    }
    stat_adapters_free(&earlier);
    stat_grown_keep(&elsewhere, NULL, 0);
    status = status == TOOL_OK ? stat_status(&before) : status;
    stat_list_free(&before);
    tool_answers_free(&a);
    return status;
}
