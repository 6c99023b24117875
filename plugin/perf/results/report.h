/* SPDX-FileCopyrightText: the nccl-net-pvrdma authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Collects the jobs' reports, prints them as they arrive, and writes them as JSON, CSV and SVG at
 * the end. */
#ifndef PVN_PERF_REPORT_H
#define PVN_PERF_REPORT_H

#include <stdbool.h>
#include <stdio.h>

#include "perf/results/baseline.h"
#include "perf/options/opts.h"
#include "perf/rank/row.h"
#include "perf/results/run_info.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the JSON. It increases with every change that would break a reader of the old
 * one. */
#define PVN_REPORT_FORMAT 1

/* One test point of one plugin over all repeats. */
struct pvn_summary {
    const struct pvn_row *first; /* the row of the first repeat */
    int plugin;
    struct pvn_row_result key; /* test, item, ranks, bytes and so on, of the first repeat */
    int n;                     /* repeats */
    double median, low, high;  /* of pvn_report_value: us for latency, else MB/s busbw */
    double cpu, rate;
    int64_t errors;
    uint32_t via; /* PVN_VIA_ bits of all repeats */
};

/* Intervals of --duration for the chart. Those of a long run are merged to limit their number. */
#define PVN_TIMELINE_MAX 1024

struct pvn_timeline {
    struct pvn_time_point {
        int plugin, repeat;
        struct pvn_row_interval i;
    } * point;
    int n;
};

struct pvn_report {
    const struct pvn_perf_opts *o;
    FILE *text; /* tables: stdout, or stderr if stdout carries JSON or CSV */
    int tty;
    struct pvn_row *row; /* results and devices, in the order of arrival */
    int nrows, cap;
    int progress_shown; /* columns of the line that the next one overwrites */
    char header_for[64];
    int said_devices; /* plugins whose devices were printed, as bits */
    int no_memory;
    int lines_failed;                /* not 0: writing --json-lines failed, which was reported */
    int files;                       /* this process prints the table's end and writes files */
    FILE *json, *csv, *plot, *lines; /* NULL: not requested */
    struct pvn_timeline timeline;    /* empty unless --plot was given */
    struct pvn_run_info run;
    struct pvn_baseline *baseline; /* NULL: not requested */
    int worse;                     /* number of worse figures, see pvn_report_compare */
    int external;                  /* ranks, and their messages, may be on other machines */
    char error[512]; /* why the run failed; "" if it did not, or if the cause is unknown */
};

/*
 * files: this process writes the files. They are opened and truncated before the run. 0, or -1
 * after a message if one cannot be opened.
 */
int pvn_report_open(struct pvn_report *rep, const struct pvn_perf_opts *o, int files,
                    const struct pvn_run_info *run);
void pvn_report_row(void *rep, const struct pvn_row *row); /* fits pvn_job.on_row */
/* Compares with the baseline, if there is one. Returns pvn-perf's exit status after a run that
 * ended with `status`. */
int pvn_report_compare(struct pvn_report *rep, int status);
/*
 * Prints the comparison table and writes the files. status: pvn-perf's exit status. 0, or -1 after
 * a message if a file failed.
 */
int pvn_report_close(struct pvn_report *rep, int status);

/* 1 if results are compared by time; else they are compared by bandwidth. */
int pvn_report_is_time(const struct pvn_row_result *r);

/*
 * The figure that is compared: a time in us, or bus bandwidth in MB/s (algorithm bandwidth with one
 * rank).
 */
double pvn_report_value(const struct pvn_row_result *r);

/* True if this row has the measured figure. Other rows have no field in JSON and an empty column in
 * CSV. */
bool pvn_report_has_bandwidth(const struct pvn_row_result *r);
bool pvn_report_has_busbw(const struct pvn_row_result *r); /* not with one rank */
bool pvn_report_has_cpu(const struct pvn_row_result *r);

/* Adds an interval. 0 or -ENOMEM. */
int pvn_timeline_add(struct pvn_timeline *t, const struct pvn_row *row);

/* Writes one line for --json-lines. 0 or a negative errno. */
int pvn_report_line(const struct pvn_report *rep, const struct pvn_row *row);

/* Converts MB/s to Gbit/s (10^9 bits). */
double pvn_report_gbps(double MBps);
/* Edges of a bin of struct pvn_row_bins, in us. */
void pvn_report_bin(uint32_t bin, double *low_us, double *high_us);

/* Doorbells of both ends per message; b->msgs must not be 0. */
double pvn_report_per_message(const struct pvn_doorbells *b);

/* Medians over the repeats, in the order of the first repeat. malloc'ed; NULL with *n 0 if none. */
struct pvn_summary *pvn_report_summary(const struct pvn_report *rep, int *n);

/* "64 KiB", "1.5 MiB", "1000 B": powers of 1024; out holds 24 characters. */
const char *pvn_report_size(uint64_t bytes, char out[24]);

/* Write the report. 0 or a negative errno. */
int pvn_report_json(const struct pvn_report *rep, FILE *f, int status);
int pvn_report_csv(const struct pvn_report *rep, FILE *f, int status);
int pvn_report_svg(const struct pvn_report *rep, FILE *f, int status);

#ifdef __cplusplus
}
#endif

#endif
