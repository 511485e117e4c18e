# Keeps 300,000 lines of text in memory, 88 MB in all, reads them back and checks them.
# With the name of a file it waits in between until there is one of that name.
push @line, "line $_ " . "of a text that does not fit " x 8 for 1 .. 300_000;
sleep 1 until !@ARGV || -e $ARGV[0];
$right += $line[$_ - 1] =~ /^line $_ of/ for 1 .. @line;
print "$right of 300000 lines are right\n";
