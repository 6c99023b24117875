/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/results/report.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf/results/mesh_view.h"
#include "perf/rank/stop.h"

static void cannot_write(const char *path, int err)
{
    if (strcmp(path, "-") != 0)
        fprintf(stderr, "pvn-perf: cannot write %s: %s\n", path, strerror(err));
    else if (err != EPIPE)
        fprintf(stderr, "pvn-perf: standard output cannot be written: %s\n", strerror(err));
}

static int open_file(const char *path, FILE **f)
{
    if (!path[0])
        return 0;
    *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    if (*f)
        return 0;
    cannot_write(path, errno);
    return -1;
}

static int read_baseline(struct pvn_report *rep, const char *path)
{
    char why[512];

    rep->baseline = pvn_baseline_read(path, why, sizeof(why));
    if (rep->baseline)
        return 0;
    fprintf(stderr, "pvn-perf: --baseline: %s\n", why);
    return -1;
}

int pvn_report_open(struct pvn_report *rep, const struct pvn_perf_opts *o, int files,
                    const struct pvn_run_info *run)
{
    int to_stdout = strcmp(o->json, "-") == 0 || strcmp(o->csv, "-") == 0 ||
                    strcmp(o->plot, "-") == 0 || strcmp(o->json_lines, "-") == 0;

    memset(rep, 0, sizeof(*rep));
    rep->o = o;
    rep->run = *run;
    rep->text = to_stdout ? stderr : stdout;
    rep->tty = isatty(fileno(stderr));
    rep->files = files;
    if (!files)
        return 0;
    if (o->baseline[0] && read_baseline(rep, o->baseline))
        return -1;
    if (open_file(o->json, &rep->json) || open_file(o->csv, &rep->csv) ||
        open_file(o->plot, &rep->plot) || open_file(o->json_lines, &rep->lines)) {
        pvn_baseline_free(rep->baseline);
        return -1;
    }
    return 0;
}

static void clear_progress(struct pvn_report *rep)
{
    if (rep->progress_shown)
        fprintf(stderr, "\r%*s\r", rep->progress_shown, "");
    rep->progress_shown = 0;
}

static void show_progress(struct pvn_report *rep, const struct pvn_row *row)
{
    char line[100];
    int n;

    if (!rep->tty || rep->o->quiet)
        return;
    n = snprintf(line, sizeof(line), "  ... %s: %s", rep->o->plugin[row->plugin].name, row->u.text);
    clear_progress(rep);
    rep->progress_shown = n < (int)sizeof(line) ? n : (int)sizeof(line) - 1;
    fputs(line, stderr);
}

static void print_device(struct pvn_report *rep, const struct pvn_row *row)
{
    const struct pvn_row_device *d = &row->u.device;

    if (rep->o->quiet || row->repeat > 0 || (rep->said_devices & 1 << row->plugin))
        return;
    fprintf(rep->text,
            "  rank %-3d on %s%s%s: device %d %s, %d Mbit/s, port %d, %d receives per group%s%s\n",
            d->rank, d->host, d->netns[0] ? ", namespace " : "", d->netns, d->dev, d->name,
            d->speed, d->port, d->max_recvs, d->pci[0] ? ", " : "", d->pci);
}

static void put_failovers(FILE *f, uint64_t failovers, uint64_t failbacks)
{
    if (failovers)
        fprintf(f, "  FAILOVER: %llu", (unsigned long long)failovers);
    if (failbacks)
        fprintf(f, "  %llu returned to better lanes", (unsigned long long)failbacks);
}

static void print_interval(struct pvn_report *rep, const struct pvn_row *row)
{
    const struct pvn_row_interval *i = &row->u.interval;
    double MBps = i->seconds > 0 ? (double)i->bytes / i->seconds / 1e6 : 0;
    char size[24], via[24];
    int rc = rep->lines ? pvn_report_line(rep, row) : 0;

    if (rc == -EPIPE)
        pvn_stop_request(SIGPIPE);
    else if (rc)
        cannot_write(rep->o->json_lines, -rc);
    rep->lines_failed |= rc;
    if (rep->plot && pvn_timeline_add(&rep->timeline, row))
        rep->no_memory = 1;
    if (rep->o->quiet)
        return;
    fprintf(rep->text, "%9.1f - %8.1f s %10s %10.1f MB/s %8.2f Gbit/s %11llu messages  ", i->from,
            i->to, pvn_report_size(i->bytes_each, size), MBps, pvn_report_gbps(MBps),
            (unsigned long long)i->messages);
    if (i->errors > 0)
        fprintf(rep->text, "%lld WRONG", (long long)i->errors);
    else
        fputs(i->errors == 0 ? "right" : "not checked", rep->text);
    if (i->via)
        fprintf(rep->text, "  %s", pvn_via_text(i->via, via, sizeof(via)));
    put_failovers(rep->text, i->failovers, i->failbacks);
    fputc('\n', rep->text);
}

static void print_soak(const struct pvn_report *rep, const struct pvn_row *row)
{
    const struct pvn_row_result *r = &row->u.result;
    char size[24];

    fprintf(rep->text, "%s, %s: %.1f MB/s, %.2f Gbit/s; %llu messages with %llu bytes were %s",
            rep->o->plugin[row->plugin].name, pvn_report_size(r->bytes, size), r->busbw,
            pvn_report_gbps(r->busbw), (unsigned long long)r->got_messages,
            (unsigned long long)r->got_bytes, r->errors < 0 ? "received, unchecked" : "right");
    if (r->errors > 0)
        fprintf(rep->text, ", %lld WRONG", (long long)r->errors);
    put_failovers(rep->text, r->failovers, r->failbacks);
    fputc('\n', rep->text);
}

static const char *right(int64_t errors, char out[24])
{
    if (errors < 0)
        return "-";
    snprintf(out, 24, "%lld", (long long)errors);
    return out;
}

static void print_header(struct pvn_report *rep, const struct pvn_row_result *r)
{
    const char *latency = strcmp(r->test, "latency") == 0 ? "latency" : "rest";

    if (strcmp(rep->header_for, latency) == 0)
        return;
    snprintf(rep->header_for, sizeof(rep->header_for), "%s", latency);
    if (strcmp(latency, "latency") == 0)
        fprintf(rep->text, "%-12s %-10s %12s %5s %-8s %9s %9s %9s %9s %9s %9s %8s %6s\n", "plugin",
                "test", "size", "ranks", "via", "us", "min", "p90", "p99", "p99.9", "max", "iters",
                "wrong");
    else
        fprintf(rep->text, "%-12s %-10s %12s %5s %-8s %10s %10s %10s %8s %10s %8s %6s\n", "plugin",
                "test", "size", "ranks", "via", "us", "algbw MB/s", "busbw MB/s", "Gbit/s", "msg/s",
                "cpu s/GB", "wrong");
}

static void print_result(struct pvn_report *rep, const struct pvn_row *row)
{
    const struct pvn_row_result *r = &row->u.result;
    const char *plugin = rep->o->plugin[row->plugin].name;
    char size[24], wrong[24], rate[16] = "-", cpu[16] = "-", bus[16] = "-", via[24];

    /* The table has the sum of a preset's buckets, which are in the files. Paths are in the
     * matrix. */
    if (rep->o->quiet || ((strcmp(r->test, "bucket") == 0 || r->from != r->to) && !rep->o->verbose))
        return;
    if (strcmp(r->test, "idle") == 0) {
        fprintf(rep->text,
                "%s: %d idle comms%s%s: %.3f us per test() call, %.0f passes/s over all of them, "
                "%.1f KiB of memory per comm\n",
                plugin, r->channels, r->via ? " via " : "", pvn_via_text(r->via, via, sizeof(via)),
                r->time_us, r->rate, r->rss);
        return;
    }
    if (strcmp(r->test, "soak") == 0) {
        print_soak(rep, row);
        return;
    }
    print_header(rep, r);
    pvn_report_size(r->bytes, size);
    if (!pvn_via_text(r->via, via, sizeof(via))[0])
        snprintf(via, sizeof(via), "-");
    if (strcmp(r->test, "latency") == 0) {
        fprintf(rep->text,
                "%-12s %-10s %12s %5d %-8s %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %8llu %6s\n", plugin,
                r->test, size, r->ranks, via, r->time_us, r->min_us, r->p90_us, r->p99_us,
                r->p999_us, r->max_us, (unsigned long long)r->iters, right(r->errors, wrong));
    } else {
        if (r->rate > 0)
            snprintf(rate, sizeof(rate), "%.0f", r->rate);
        if (r->cpu > 0 && r->bytes >= 4096) /* below, it is CPU time per message */
            snprintf(cpu, sizeof(cpu), "%.3f", r->cpu);
        if (pvn_report_has_busbw(r))
            snprintf(bus, sizeof(bus), "%.1f", r->busbw);
        fprintf(rep->text, "%-12s %-10s %12s %5d %-8s %10.1f %10.1f %10s %8.2f %10s %8s %6s\n",
                plugin, r->item[0] ? r->item : r->test, size, r->ranks, via, r->time_us, r->algbw,
                bus, pvn_report_gbps(pvn_report_value(r)), rate, cpu, right(r->errors, wrong));
    }
}

static void print_failed_path(const struct pvn_row *row)
{
    fprintf(stderr, "pvn-perf: ranks %d and %d failed with each other: %s\n", row->u.failed.a,
            row->u.failed.b, row->u.failed.why);
}

static void print_doorbells(struct pvn_report *rep, const struct pvn_row *row)
{
    const struct pvn_doorbells *b = &row->u.doorbells.sum;
    double n = (double)b->msgs;

    if (rep->o->quiet)
        return;
    fprintf(rep->text,
            "%s: %d ranks: %.2f doorbells per message (%.2f post_send, %.2f post_recv, %.2f empty "
            "polls) over all %llu\n",
            rep->o->plugin[row->plugin].name, row->u.doorbells.ranks, pvn_report_per_message(b),
            (double)b->send / n, (double)b->recv / n, (double)b->empty / n,
            (unsigned long long)b->msgs);
}

/* Flushes the table. If nobody reads it any more, as after `| head`, the run ends. */
static void flush_text(struct pvn_report *rep)
{
    errno = 0;
    if ((fflush(rep->text) || ferror(rep->text)) && errno == EPIPE)
        pvn_stop_request(SIGPIPE);
}

static void take_row(struct pvn_report *rep, const struct pvn_row *row)
{
    if (row->kind == PVN_ROW_PROGRESS) {
        show_progress(rep, row);
        return;
    }
    if (row->kind == PVN_ROW_ERROR) {
        snprintf(rep->error, sizeof(rep->error), "%s", row->u.text);
        return;
    }
    clear_progress(rep);
    if (row->kind == PVN_ROW_INTERVAL) {
        print_interval(rep, row);
        return;
    }
    if (row->kind == PVN_ROW_NOTE) {
        if (!rep->o->quiet && row->repeat == 0 && !(rep->said_devices & 1 << row->plugin))
            fprintf(rep->text, "%s\n", row->u.text);
        return;
    }
    if (rep->nrows == rep->cap) {
        int cap = rep->cap ? rep->cap * 2 : 64;
        struct pvn_row *more = realloc(rep->row, sizeof(*more) * (size_t)cap);

        if (!more) {
            rep->no_memory = 1;
            return;
        }
        rep->row = more;
        rep->cap = cap;
    }
    rep->row[rep->nrows++] = *row;
    if (row->kind == PVN_ROW_DEVICE) {
        print_device(rep, row);
    } else if (row->kind == PVN_ROW_DOORBELLS) {
        print_doorbells(rep, row);
    } else if (row->kind == PVN_ROW_PATH_FAILED) {
        print_failed_path(row);
    } else if (row->kind == PVN_ROW_RESULT) {
        rep->said_devices |= 1 << row->plugin;
        print_result(rep, row);
    }
}

void pvn_report_row(void *arg, const struct pvn_row *row)
{
    struct pvn_report *rep = arg;

    take_row(rep, row);
    flush_text(rep);
}

/* This point for the first plugin that has it. */
static const struct pvn_summary *baseline(const struct pvn_summary *sum, int n,
                                          const struct pvn_summary *s)
{
    for (int i = 0; i < n; i++)
        if (sum[i].key.bytes == s->key.bytes && sum[i].key.ranks == s->key.ranks &&
            strcmp(sum[i].key.test, s->key.test) == 0 && strcmp(sum[i].key.item, s->key.item) == 0)
            return &sum[i];
    return s;
}

static void print_summary(const struct pvn_report *rep)
{
    int n;
    struct pvn_summary *sum = pvn_report_summary(rep, &n);

    fprintf(
        rep->text,
        "\nmedians of %d (us for latency and idle, else busbw MB/s, with one rank algbw); ratio to %s\n",
        rep->o->repeat, rep->o->plugin[0].name);
    fprintf(rep->text, "%-12s %-16s %12s %5s %-8s %10s %10s %10s %8s %8s\n", "plugin", "test",
            "size", "ranks", "via", "median", "min", "max", "cpu s/GB", "ratio");
    for (int i = 0; sum && i < n; i++) {
        const struct pvn_summary *s = &sum[i], *b = baseline(sum, n, s);
        char size[24], via[24], cpu[16] = "-";

        if (strcmp(s->key.test, "bucket") == 0)
            continue;
        if (!pvn_via_text(s->via, via, sizeof(via))[0])
            snprintf(via, sizeof(via), "-");
        if (pvn_report_has_cpu(&s->key))
            snprintf(cpu, sizeof(cpu), "%.3f", s->cpu);
        fprintf(rep->text, "%-12s %-16s %12s %5d %-8s %10.2f %10.2f %10.2f %8s %8.2f\n",
                rep->o->plugin[s->plugin].name, s->key.item[0] ? s->key.item : s->key.test,
                pvn_report_size(s->key.bytes, size), s->key.ranks, via, s->median, s->low, s->high,
                cpu, b->median > 0 ? s->median / b->median : 0.0);
    }
    free(sum);
}

typedef int (*write_fn)(const struct pvn_report *rep, FILE *f, int status);

static int write_file(const struct pvn_report *rep, const char *path, FILE *f, write_fn write,
                      int status)
{
    int rc;

    if (!f)
        return 0;
    errno = 0;
    rc = write(rep, f, status);
    if ((f == stdout ? fflush(f) : fclose(f)) && !rc)
        rc = -errno;
    if (!rc)
        return 0;
    cannot_write(path, -rc);
    return -1;
}

static void print_verdict(const struct pvn_report *rep, int status)
{
    if (status >= PVN_PERF_INTERRUPTED)
        fprintf(rep->text, "INTERRUPTED: what was measured until then counts\n");
    else if (status == PVN_PERF_FAILED)
        fprintf(rep->text, "FAILED: %s\n",
                (rep->external || rep->o->mode == PVN_PERF_MESH) && rep->error[0]
                    ? rep->error
                    : "see the message above");
    else if (rep->worse > 0)
        fprintf(rep->text, "WORSE: %d figure%s by more than %d %% than in %s\n", rep->worse,
                rep->worse == 1 ? "" : "s", rep->o->tolerance, rep->o->baseline);
    else if (status == PVN_PERF_WRONG)
        fprintf(rep->text, "WRONG DATA: see the messages above\n");
    else
        fprintf(rep->text, "%s\n",
                rep->o->check ? "all data verified" : "done; data was not verified (--check does)");
}

int pvn_report_compare(struct pvn_report *rep, int status)
{
    int worse;

    if (!rep->baseline || status != PVN_PERF_OK)
        return status;
    clear_progress(rep);
    worse = pvn_baseline_compare(rep->baseline, rep);
    if (worse < 0)
        return PVN_PERF_FAILED;
    rep->worse = worse;
    return worse > 0 ? PVN_PERF_WRONG : PVN_PERF_OK;
}

int pvn_report_close(struct pvn_report *rep, int status)
{
    const struct pvn_perf_opts *o = rep->o;
    int rc = 0, results = 0;

    if (!rep->files)
        return 0;
    clear_progress(rep);
    for (int i = 0; i < rep->nrows; i++)
        results += rep->row[i].kind == PVN_ROW_RESULT;
    if (!o->quiet && o->mode == PVN_PERF_MESH)
        pvn_mesh_print(rep);
    else if (!o->quiet && results && (o->repeat > 1 || o->nplugins > 1))
        print_summary(rep);
    if (!o->quiet)
        print_verdict(rep, status);
    fflush(rep->text);
    if (rep->no_memory) {
        fprintf(stderr, "pvn-perf: out of memory for the results\n");
        rc = -1;
    }
    rc |= write_file(rep, o->json, rep->json, pvn_report_json, status);
    rc |= write_file(rep, o->csv, rep->csv, pvn_report_csv, status);
    rc |= write_file(rep, o->plot, rep->plot,
                     o->mode == PVN_PERF_MESH ? pvn_mesh_svg : pvn_report_svg, status);
    if (rep->lines && rep->lines != stdout && fclose(rep->lines) && !rep->lines_failed) {
        cannot_write(o->json_lines, errno);
        rc = -1;
    }
    rc |= rep->lines_failed ? -1 : 0;
    free(rep->row);
    free(rep->timeline.point);
    rep->row = NULL;
    pvn_baseline_free(rep->baseline);
    rep->baseline = NULL;
    return rc;
}
