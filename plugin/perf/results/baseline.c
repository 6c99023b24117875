/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "perf/results/baseline.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "perf/results/report.h"
#include "tools/json_text.h"

struct pvn_baseline {
    json_t *doc, *summary;
    bool one_plugin;
};

static bool is_of_one_plugin(const json_t *summary)
{
    const json_t *row;
    size_t i;

    json_array_foreach(summary, i, row)
    {
        if (strcmp(pvn_json_text(row, "plugin"),
                   pvn_json_text(json_array_get(summary, 0), "plugin")) != 0)
            return false;
    }
    return true;
}

struct pvn_baseline *pvn_baseline_read(const char *path, char *why, size_t why_len)
{
    struct pvn_baseline *b = calloc(1, sizeof(*b));
    json_error_t error;
    json_t *doc = b ? json_load_file(path, 0, &error) : NULL;

    if (!b)
        snprintf(why, why_len, "out of memory");
    else if (!doc && error.line < 0)
        snprintf(why, why_len, "%s", error.text); /* names the file */
    else if (!doc)
        snprintf(why, why_len, "%s, line %d: %s: give a file that pvn-perf --json has written",
                 path, error.line, error.text);
    else if (strcmp(pvn_json_text(doc, "tool"), "pvn-perf") != 0)
        snprintf(why, why_len, "%s is JSON, but not of pvn-perf --json", path);
    else if (json_integer_value(json_object_get(doc, "format")) != PVN_REPORT_FORMAT)
        snprintf(why, why_len, "%s has format %lld, this pvn-perf reads format %d: measure again",
                 path, (long long)json_integer_value(json_object_get(doc, "format")),
                 PVN_REPORT_FORMAT);
    else if (json_array_size(json_object_get(doc, "summary")) == 0)
        snprintf(why, why_len, "%s has no figures: its run had failed before the first one", path);
    else {
        b->doc = doc;
        b->summary = json_object_get(doc, "summary");
        b->one_plugin = is_of_one_plugin(b->summary);
        return b;
    }
    json_decref(doc);
    free(b);
    return NULL;
}

void pvn_baseline_free(struct pvn_baseline *b)
{
    if (!b)
        return;
    json_decref(b->doc);
    free(b);
}

static const json_t *find_row(const struct pvn_baseline *b, const struct pvn_report *rep,
                              const struct pvn_summary *s)
{
    bool any_name = b->one_plugin && rep->o->nplugins == 1;
    const json_t *row;
    size_t i;

    json_array_foreach(b->summary, i, row)
    {
        if ((any_name ||
             strcmp(pvn_json_text(row, "plugin"), rep->o->plugin[s->plugin].name) == 0) &&
            strcmp(pvn_json_text(row, "test"), s->key.test) == 0 &&
            strcmp(pvn_json_text(row, "item"), s->key.item) == 0 &&
            json_integer_value(json_object_get(row, "ranks")) == s->key.ranks &&
            (uint64_t)json_integer_value(json_object_get(row, "bytes")) == s->key.bytes &&
            json_number_value(json_object_get(row, "median")) > 0)
            return row;
    }
    return NULL;
}

double pvn_baseline_median(const struct pvn_baseline *b, const struct pvn_report *rep,
                           const struct pvn_summary *s)
{
    const json_t *row = find_row(b, rep, s);

    return row ? json_number_value(json_object_get(row, "median")) : -1;
}

/* Compares s with an earlier median, which is above 0. AS_BEFORE: they differ by at most
 * tolerance_percent of it. */
enum verdict { AS_BEFORE, BETTER, WORSE };
static enum verdict verdict_of(const struct pvn_summary *s, double median, int tolerance_percent)
{
    double ratio = s->median / median, by = tolerance_percent / 100.0;

    if (pvn_report_is_time(&s->key))
        return ratio > 1 + by ? WORSE : ratio < 1 - by ? BETTER : AS_BEFORE;
    return ratio < 1 - by ? WORSE : ratio > 1 + by ? BETTER : AS_BEFORE;
}

/* Prints the known differences between the two runs. */
static void print_head(const struct pvn_baseline *b, const struct pvn_report *rep)
{
    const char *host = pvn_json_text(b->doc, "host"), *cpu = pvn_json_text(b->doc, "cpu");

    fprintf(rep->text, "\ncompared with %s, measured %s on %s; tolerance %d %%\n", rep->o->baseline,
            pvn_json_text(b->doc, "started"), host, rep->o->tolerance);
    if (strcmp(host, rep->run.host) != 0 || strcmp(cpu, rep->run.cpu) != 0)
        fprintf(rep->text, "it is of another machine: %s (%s), this is %s (%s)\n", host, cpu,
                rep->run.host, rep->run.cpu);
    fprintf(rep->text, "%-12s %-16s %12s %5s %10s %10s %8s\n", "plugin", "test", "size", "ranks",
            "then", "now", "ratio");
}

static void print_row(const struct pvn_baseline *b, const struct pvn_report *rep,
                      const struct pvn_summary *s, double then, enum verdict verdict)
{
    static const char *const words[] = {"", "  better", "  WORSE"};
    const char *before = pvn_json_text(find_row(b, rep, s), "via");
    char size[24], via[24];

    fprintf(rep->text, "%-12s %-16s %12s %5d ", rep->o->plugin[s->plugin].name,
            s->key.item[0] ? s->key.item : s->key.test, pvn_report_size(s->key.bytes, size),
            s->key.ranks);
    if (then <= 0) {
        fprintf(rep->text, "%10s %10.2f %8s  not in the baseline\n", "-", s->median, "-");
        return;
    }
    fprintf(rep->text, "%10.2f %10.2f %8.2f%s", then, s->median, s->median / then, words[verdict]);
    if (strcmp(before, pvn_via_text(s->via, via, sizeof(via))) != 0)
        fprintf(rep->text, "  (via %s, then %s)", via, before);
    fputc('\n', rep->text);
}

int pvn_baseline_compare(const struct pvn_baseline *b, const struct pvn_report *rep)
{
    int n, worse = 0, both = 0;
    struct pvn_summary *sum = pvn_report_summary(rep, &n);

    if (!sum) {
        fprintf(stderr, "pvn-perf: out of memory for the comparison with %s\n", rep->o->baseline);
        return -1;
    }
    if (!rep->o->quiet)
        print_head(b, rep);
    for (int i = 0; i < n; i++) {
        const struct pvn_summary *s = &sum[i];
        double then = pvn_baseline_median(b, rep, s);
        enum verdict verdict = then > 0 ? verdict_of(s, then, rep->o->tolerance) : AS_BEFORE;

        both += then > 0;
        worse += verdict == WORSE;
        if (!rep->o->quiet && strcmp(s->key.test, "bucket") != 0)
            print_row(b, rep, s, then, verdict);
    }
    free(sum);
    if (both > 0)
        return worse;
    fprintf(stderr,
            "pvn-perf: no figure is in %s and in this run: give the mode, --sizes and --ranks of "
            "that run, which are in its \"command\"\n",
            rep->o->baseline);
    return -1;
}
