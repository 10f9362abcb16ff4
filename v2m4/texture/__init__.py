"""One UV map and one picture for the whole clip, painted with the video's own pixels."""
