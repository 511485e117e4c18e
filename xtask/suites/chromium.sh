# Chromium without a window renders a page with a table, a canvas and a script that fills and checks its memory; what it
# shows and what its document holds in the end are compared by their checksums.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cat >"$place/page.html" <<'END'
<!doctype html><title>page</title><canvas id=c width=600 height=300></canvas><div id=out></div><table id=t></table>
<script>
const blocks = [];
for (let i = 0; i < 60; i++) blocks.push(new Uint32Array(1 << 18).fill(i * 7919));
const objects = [];
for (let i = 0; i < 300000; i++) objects.push({ name: 'object ' + i, next: objects[i >> 1] });
let wrong = 0;
for (let round = 0; round < 3; round++)
  blocks.forEach((block, i) => { for (const word of block) wrong += word !== i * 7919; });
objects.forEach((it, i) => { wrong += it.name !== 'object ' + i || it.next !== (i ? objects[i >> 1] : undefined); });
document.getElementById('out').textContent = wrong + ' wrong';
const canvas = document.getElementById('c').getContext('2d');
for (let i = 0; i < 600; i++) {
  canvas.fillStyle = `hsl(${i % 360} 80% 50%)`;
  canvas.fillRect(i, 150 + 120 * Math.sin(i / 40), 3, 30);
}
let rows = '';
for (let i = 0; i < 400; i++) rows += `<tr><td>${i}<td>${i * i}<td>${'word '.repeat(i % 9)}</tr>`;
document.getElementById('t').innerHTML = rows;
</script>
END
browser() {
  timeout 240 chromium --headless --no-sandbox --no-zygote --disable-gpu --user-data-dir="$place/profile" \
    --disable-dev-shm-usage \
    --disable-background-networking --hide-scrollbars --window-size=700,2000 --virtual-time-budget=60000 \
    "$@" "file://$place/page.html" 2>"$place/errors"
}
for round in 1 2; do
  browser --dump-dom >"$place/dom"
  sum() { sha256sum <"$1" | cut -c 1-12; }
  grep -q '>0 wrong<' "$place/dom" && echo "ok script $round" ||
    { echo "not ok script $round"; tail -n 5 "$place/errors"; }
  echo "ok document $round $(sum "$place/dom")"
  browser --screenshot="$place/shown.png" >/dev/null
  [ -s "$place/shown.png" ] || echo "not ok screenshot $round"
  echo "ok picture $round $(sum "$place/shown.png")"
done
# As it is started by default, with a process that forks the others and checks that it has one thread.
timeout 240 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$place/profile" \
    --disable-dev-shm-usage \
  --disable-background-networking --dump-dom "file://$place/page.html" 2>/dev/null | grep -q '>0 wrong<' &&
  echo "ok with a zygote" || echo "not ok with a zygote"
