#!/usr/bin/env bash
# A stop hook in the style of the well-known loops written in bash and jq: state in a Markdown file with frontmatter,
# the last answer looked up in the transcript, a phrase that ends the loop. Written for comparison; it decides nothing.
set -euo pipefail
input=$(cat)
state="$RALPH_STATE"
[[ -f "$state" ]] || exit 0
front=$(sed -n '/^---$/,/^---$/{ /^---$/d; p; }' "$state")
iteration=$(echo "$front" | grep '^iteration:' | sed 's/iteration: *//')
limit=$(echo "$front" | grep '^max_iterations:' | sed 's/max_iterations: *//')
promise=$(echo "$front" | grep '^completion_promise:' | sed 's/completion_promise: *//')
if [[ "$limit" -gt 0 && "$iteration" -ge "$limit" ]]; then rm -f "$state"; exit 0; fi
transcript=$(echo "$input" | jq -r '.transcript_path')
[[ -f "$transcript" ]] || exit 0
last=$(grep '"role":"assistant"' "$transcript" | tail -n 1)
text=$(echo "$last" | jq -r '.message.content | map(select(.type == "text")) | map(.text) | join("\n")')
found=$(echo "$text" | perl -0777 -pe 's/.*?<promise>(.*?)<\/promise>.*/$1/s' 2>/dev/null || true)
if [[ "$found" == "$promise" ]]; then rm -f "$state"; exit 0; fi
next=$((iteration + 1))
prompt=$(awk '/^---$/{i++; next} i>=2' "$state")
sed "s/^iteration: .*/iteration: $next/" "$state" >"$state.tmp.$$"
mv "$state.tmp.$$" "$state"
jq -n --arg prompt "$prompt" --arg message "iteration $next" \
  '{"decision": "block", "reason": $prompt, "systemMessage": $message}'
