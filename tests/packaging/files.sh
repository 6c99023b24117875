#!/usr/bin/env bash
# SPDX-FileCopyrightText: the nccl-net-pvrdma authors
# SPDX-License-Identifier: Apache-2.0
# run-all limit: 600
# Tests the files for containers and conda: linters of their formats accept them and refuse damaged copies, their parts
# fit together, and their shell scripts work in a temporary folder with the paths of a node.
set -u
tmp=$(mktemp -d)
loop=
trap '[ -z "$loop" ] || kill "$loop" 2>/dev/null; rm -rf "$tmp"' EXIT
here=$PVN_SRCDIR/tests/packaging
dir=$PVN_SRCDIR/plugin/packaging/container
version=$(sed -n 's/^AC_INIT(\[nccl-net-pvrdma\], \[\([^]]*\)\].*/\1/p' "$PVN_SRCDIR/configure.ac")
# shellcheck source=tests/packaging/verdict.sh
. "$PVN_SRCDIR/tests/packaging/verdict.sh"
# refused NAME STATUS: passes if the status, which a linter gave for a damaged file, is not 0
refused() {
    [ "$2" != 0 ]
    verdict "$1" $?
}

# Temporary folders stand for the file systems of the image and the node.
image=$tmp/image/opt/nccl-net-pvrdma
node=$tmp/node/opt/nccl-net-pvrdma/lib
scripts=$image/share/nccl-net-pvrdma/container
mkdir -p "$image/lib" "$image/bin" "$scripts"
cp "$PVN_BUILDDIR/.libs/libnccl-net-pvrdma.so" "$image/lib/"
cp "$dir"/*.sh "$scripts/"
ln -s "$PVN_BUILDDIR/topo/pvn-topo" "$image/bin/"
grep -q '^COPY --from=unpack /opt/nccl-net-pvrdma /opt/nccl-net-pvrdma$' "$dir/Dockerfile" &&
    grep -q "^ARG VERSION=$version\$" "$dir/Dockerfile" && grep -q "nccl-net-pvrdma:$version\$" "$dir/Dockerfile.job"
verdict "the image has version $version, at the place that its users name" $?

"$scripts/install.sh" "$node" >"$tmp/out" 2>&1 && cmp "$image/lib/libnccl-net-pvrdma.so" "$node/libnccl-net-pvrdma.so" >>"$tmp/out" 2>&1 &&
    [ "$(ls -A "$node")" = libnccl-net-pvrdma.so ]
verdict "install.sh installs the plugin in a folder that was not there" $?
before=$(stat -c %i "$node/libnccl-net-pvrdma.so")
"$scripts/install.sh" "$node" >"$tmp/out" 2>&1 && grep -q 'there already' "$tmp/out" && [ "$(stat -c %i "$node/libnccl-net-pvrdma.so")" = "$before" ]
verdict "install.sh leaves the same plugin alone" $?
echo old >"$node/libnccl-net-pvrdma.so"
exec 7<"$node/libnccl-net-pvrdma.so"
"$scripts/install.sh" "$node" >"$tmp/out" 2>&1 && cmp "$image/lib/libnccl-net-pvrdma.so" "$node/libnccl-net-pvrdma.so" >>"$tmp/out" 2>&1 &&
    [ "$(cat <&7)" = old ]
verdict "install.sh replaces another one, and who has that open keeps it" $?
exec 7<&-
: >"$tmp/file"
"$scripts/install.sh" "$tmp/file/lib" >"$tmp/out" 2>&1
[ $? = 1 ] && grep -q 'cannot be written to: is the volume mounted' "$tmp/out"
verdict "install.sh says so where it cannot write" $?
mv "$image/lib/libnccl-net-pvrdma.so" "$tmp/"
"$scripts/install.sh" "$node" >"$tmp/out" 2>&1
[ $? = 1 ] && grep -q 'is not there: this image was not made by' "$tmp/out"
verdict "install.sh says so where the image has no plugin" $?
mv "$tmp/libnccl-net-pvrdma.so" "$image/lib/"

# check SCRIPT: replaces the image's pvn-topo by the script, each run of which appends a line to $tmp/runs, and runs
# check.sh with it
check() {
    rm -rf "$tmp/status" "$tmp/runs" "$image/bin/pvn-topo"
    mkdir "$tmp/status"
    printf '#!/bin/sh\necho run >>%s\n%s\n' "$tmp/runs" "$1" >"$image/bin/pvn-topo"
    chmod +x "$image/bin/pvn-topo"
    PVN_CHECK_INTERVAL=1 "$scripts/check.sh" "$tmp/status" >"$tmp/out" 2>&1 &
    loop=$!
    # The second run begins once the first one's verdict is written.
    for _ in $(seq 300); do
        [ "$(wc -l 2>/dev/null <"$tmp/runs" || echo 0)" -lt 2 ] || break
        sleep 0.1
    done
    [ "$(wc -l <"$tmp/runs")" -ge 2 ]
}
end() {
    kill "$loop" && wait "$loop"
    local rc=$?
    loop=
    return $rc
}
check 'echo "FAIL    memlock  it is small"; exit 1' && [ ! -e "$tmp/status/ready" ] && grep -q '^FAIL    memlock' "$tmp/out"
verdict "check.sh logs what pvn-topo finds; the node is not ready" $?
end
verdict "check.sh ends at once and in order when the pod is deleted" $?
check 'echo "WARN    iommu  it is on"; exit 1' && [ -e "$tmp/status/ready" ] && grep -q '^WARN    iommu' "$tmp/out"
verdict "check.sh takes a warning for no reason not to be ready" $?
end && [ ! -e "$tmp/status/ready" ]
verdict "check.sh leaves no word that it is ready" $?
check 'exit 2' && [ ! -e "$tmp/status/ready" ]
verdict "check.sh is not ready where pvn-topo itself fails" $?
end
ln -sf "$PVN_BUILDDIR/topo/pvn-topo" "$image/bin/pvn-topo"
for bad in 0 -1 1h; do
    PVN_CHECK_INTERVAL=$bad timeout 20 "$scripts/check.sh" "$tmp/status" >"$tmp/out" 2>&1
    [ $? = 2 ] && grep -q "PVN_CHECK_INTERVAL=$bad: it takes" "$tmp/out"
    verdict "check.sh refuses an interval of $bad" $?
done

python=$("$PVN_SRCDIR/plugin/packaging/portable/venv.sh" "$here/requirements.txt" 2>"$tmp/out") || {
    echo "skip the linters of containers and conda: $(tail -n 1 "$tmp/out")"
    exit 0
}
bin=$(dirname "$python")
for f in Dockerfile Dockerfile.job; do
    "$bin/hadolint" "$dir/$f" >"$tmp/out" 2>&1
    verdict "hadolint takes $f" $?
    sed 's/^FROM \([^ ]*\)/FROM --platfrom=x \1/' "$dir/$f" >"$tmp/damaged"
    "$bin/hadolint" "$tmp/damaged" >"$tmp/out" 2>&1
    refused "hadolint refuses a damaged $f" $?
done
for f in daemonset job; do
    "$bin/kubernetes-validate" --strict "$dir/$f.yaml" >"$tmp/out" 2>&1
    verdict "Kubernetes' schema takes $f.yaml" $?
    sed 's/mountPath:/mountpath:/' "$dir/$f.yaml" >"$tmp/damaged.yaml"
    "$bin/kubernetes-validate" --strict "$tmp/damaged.yaml" >"$tmp/out" 2>&1
    refused "Kubernetes' schema refuses a damaged $f.yaml" $?
    "$python" "$here/container.py" check "$dir/$f.yaml" "$version" >"$tmp/out" 2>&1 && [ ! -s "$tmp/out" ]
    verdict "the mounts, paths and images of $f.yaml fit together" $?
    # Each edit makes one fault that no schema detects.
    for damage in 's,libnccl-net-pvrdma.so$,libnccl-net.so,' 's,^            - name: \(node\|pvrdma\)$,            - name: other,' "s,nccl-net-pvrdma:$version,nccl-net-pvrdma:0," \
        's,^            - /\(host/lib\|opt/pvrdma\)$,            - /elsewhere,'; do
        sed "$damage" "$dir/$f.yaml" >"$tmp/damaged.yaml"
        "$python" "$here/container.py" check "$tmp/damaged.yaml" "$version" >"$tmp/out" 2>/dev/null
        grep -q . "$tmp/out"
        verdict "what does not fit in $f.yaml is found ($damage)" $?
    done
    [ "$f" != job ] || for damage in 's/subdomain: train/subdomain: other/' 's/completionMode: Indexed/completionMode: NonIndexed/' 's/train-0[.]train/train-1.train/' \
        's/parallelism: 2/parallelism: 1/' 's/nnodes=2/nnodes=4/' 's/^    job-name: train/    job-name: other/'; do
        sed "$damage" "$dir/$f.yaml" >"$tmp/damaged.yaml"
        "$python" "$here/container.py" check "$tmp/damaged.yaml" "$version" >"$tmp/out" 2>/dev/null
        grep -q . "$tmp/out"
        verdict "pods that do not find each other are found ($damage)" $?
    done
    # The commands run with the node's paths instead of the container's.
    rm -rf "$tmp/node" "$tmp/status"
    while IFS=$'\t' read -r script folder; do
        case $script in
        */install.sh)
            "$script" "$folder" >"$tmp/out" 2>&1 && cmp "$image/lib/libnccl-net-pvrdma.so" "$folder/libnccl-net-pvrdma.so" >>"$tmp/out" 2>&1
            verdict "the command of $f.yaml installs the plugin" $?
            ;;
        */check.sh)
            mkdir -p "$folder"
            PVN_CHECK_INTERVAL=600 timeout 20 "$script" "$folder" >"$tmp/out" 2>&1 &
            loop=$!
            for _ in $(seq 150); do
                ! grep -q '^OK ' "$tmp/out" || break
                sleep 0.1
            done
            kill "$loop" && wait "$loop"
            loop=
            grep -qE '^(OK|WARN|FAIL|UNKNOWN) ' "$tmp/out"
            verdict "the command of $f.yaml checks this machine" $?
            ;;
        esac
    done < <("$python" "$here/container.py" commands "$dir/$f.yaml" "$tmp/image" "$tmp/node")
    [ "$f" != daemonset ] || [ -r "$node/libnccl-net-pvrdma.so" ]
    verdict "the plugin of $f.yaml lies where jobs look for it" $?
done

recipe=$PVN_SRCDIR/plugin/packaging/conda/recipe.yaml.in
sum=$(sha256sum <"$recipe")
sed "s/@VERSION@/$version/; s/@SHA256@/${sum:0:64}/" "$recipe" >"$tmp/recipe.yaml"
"$python" "$here/conda.py" "$tmp/recipe.yaml" "$version" >"$tmp/out" 2>&1
verdict "rattler-build renders the recipe for conda" $?
cp "$tmp/out" "$tmp/commands"
"$python" "$here/conda.py" "$recipe" "$version" >"$tmp/out" 2>&1
refused "rattler-build refuses a recipe without a checksum" $?
# The recipe's commands are tried on the sources: configure knows each option, and make would install the library that
# the recipe's own test looks for.
configure=$(sed -n 's,^\./configure ,,p' "$tmp/commands")
mkdir "$tmp/build"
(cd "$tmp/build" && PREFIX=$tmp/prefix bash -c "'$PVN_SRCDIR/configure' -q --enable-option-checking=fatal $configure" && make -n install-libLTLIBRARIES) >"$tmp/out" 2>&1 &&
    grep -q -- "-o libnccl-net-pvrdma.la -rpath $tmp/prefix/lib " "$tmp/out"
verdict "configure and make take what the recipe gives them" $?
