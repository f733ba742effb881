#!/bin/sh
# Run a small workflow to its end. Needs `rota` on PATH; writes only to .rota-demo in the checkout.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
export ROTA_HOME="$root/.rota-demo"
cd "$root"

echo "== Starting Rota in its own home"
rota up
rota pool set global 2 # two jobs at a time, so one of the three parallel jobs has to wait

echo
echo "== Submitting: plan, then two builds and the tests in parallel, then a merge"
plan=$(rota submit --name plan -- sh -c 'echo "reading the task"; sleep 0.5; echo "plan: two parts and their tests"')
api=$(rota submit --name build-api --after "$plan" --lock repo:shared -- \
    sh -c 'echo "building the api"; sleep 1.2; echo "api built"')
web=$(rota submit --name build-web --after "$plan" --lock repo:shared -- \
    sh -c 'echo "building the web app"; sleep 0.8; echo "web app built"; echo "one warning" >&2')
tests=$(rota submit --name tests --after "$plan" --lock repo:shared -- \
    sh -c 'for n in 1 2 3; do echo "test $n passes"; sleep 0.3; done')
merge=$(rota submit --name merge --after "$api" --after "$web" --after "$tests" --lock repo -- \
    sh -c 'echo "merging"; sleep 0.7; echo "merged"')
echo "$plan $api $web $tests $merge"

echo
echo "== Why is $merge waiting?"
rota why "$merge"

echo
echo "== Waiting for all jobs"
rota wait "$plan" "$api" "$web" "$tests" "$merge"

echo
echo "== What ran"
rota list --all

echo
echo "== Output of $tests (rota logs $tests)"
rota logs "$tests"

rota=$(command -v rota)
cat <<END

Logs      $ROTA_HOME/jobs/
Socket    $ROTA_HOME/rota.sock
Inspect   $rota --home '$ROTA_HOME' status
          $rota --home '$ROTA_HOME' show $merge
Stop      $rota --home '$ROTA_HOME' down
END
