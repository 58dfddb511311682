#!/bin/sh
# settings.sh DIR: write the settings of three controllers and of a broker, which serves the console, below DIR, and format
# their data directories. What is there already is kept. The nodes are dialled at the names of compose.yaml.
set -eu
cd "$1"
[ ! -e complete ] || exit 0
umask 077

# value NAME: of the `storage info -o json` that stands on stdin
value() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p"; }

[ -e cluster-id ] || {
    python3 -c 'import base64, os; print(base64.urlsafe_b64encode(b"\x01" + os.urandom(15)).decode().rstrip("="))' >cluster-id.new
    mv cluster-id.new cluster-id
}
id=$(cat cluster-id)

head_of_controller() {
    printf 'cluster_id = "%s"\nnode_id = %s\ndata_dir = "controller-%s"\ninsecure = true\n\n' "$id" "$1" "$1"
    printf '[listen]\nhttp = "http://0.0.0.0:909%s"\nraft = "0.0.0.0:919%s"\n\n' "$1" "$1"
    printf '[advertised]\nhttp = "http://controller-%s:909%s"\nraft = "controller-%s:919%s"\n' "$1" "$1" "$1" "$1"
}

# formatted SETTINGS: what it says of a settings file that names no voters yet is no news; why it fails is.
formatted() {
    said=$(metaquorum storage format --config "$1" 2>&1) || {
        status=$?
        printf '%s\n' "$said" >&2
        exit "$status"
    }
}

for node in 1 2 3; do
    head_of_controller "$node" >"controller-$node.toml"
    [ -e "controller-$node/meta.json" ] || formatted "controller-$node.toml"
done

voters=
for node in 1 2 3; do
    directory=$(metaquorum storage info "controller-$node" -o json | tr ',' '\n' | value directory_id)
    voters="$voters$(printf '\n[[voters]]\nid = %s\nraft = "controller-%s:919%s"\nhttp = "http://controller-%s:909%s"\ndirectory_id = "%s"' \
        "$node" "$node" "$node" "$node" "$node" "$directory")
"
done
for node in 1 2 3; do
    { head_of_controller "$node" && printf '%s' "$voters"; } >"controller-$node.toml.new"
    mv "controller-$node.toml.new" "controller-$node.toml"
done

{
    printf 'cluster_id = "%s"\nbroker_id = 11\ndata_dir = "console"\ninsecure = true\n' "$id"
    printf 'controllers = ["http://controller-1:9091", "http://controller-2:9092", "http://controller-3:9093"]\n\n'
    printf '[listen]\nhttp = "http://0.0.0.0:9101"\n\n[advertised]\nhttp = "http://console:9101"\n'
} >console.toml
[ -e console/meta.json ] || formatted console.toml
: >complete
